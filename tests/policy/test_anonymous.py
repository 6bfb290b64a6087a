"""A snapshot without names: none is left in it, and the same is decided on it."""

from collections.abc import Iterable
from dataclasses import fields, replace

import pytest
from hypothesis import given

from policy import snapshot_file
from policy.anonymous import anonymous
from policy.cluster_state import ClusterState
from policy.document import parse
from policy.failure_rules import FailureAction, FailureRule
from policy.first_seen import OwnTimes
from policy.model import Policy
from policy.plan import Head, History, Line, Plan
from policy.plan_input import PlanInput
from policy.snapshot import (
    Constraints,
    Job,
    JobCondition,
    JobStatus,
    Node,
    Pod,
    Requirement,
    ServerSpec,
    Snapshot,
    Taint,
    Toleration,
    TrainerAccounting,
)
from policy.snapshot_file import SnapshotFile
from tests.support.builders import NOW_S, job, node, service, trainers
from tests.support.inputs import inputs
from tests.support.strategies import CALM


def _in_order(names: Iterable[str]) -> dict[str, int]:
    return {name: position for position, name in enumerate(sorted(set(names)))}


def _decisions(taken: PlanInput, plan: Plan) -> list[object]:
    """A plan with the places of names in their order instead of the names."""
    nodes = _in_order(["", *(n.name for n in taken.snapshot.nodes)])
    uids = _in_order(pod.uid for pod in taken.snapshot.pods)
    jobs = _in_order(job_plan.key for job_plan in plan.jobs)
    return [
        [(j.live, j.target, j.reason, round(j.share, 9)) for j in plan.jobs],
        [
            (jobs[c.job], c.tier, [nodes[n] for n in c.nodes], len(c.avoided_nodes), c.master)
            for c in plan.creates
        ],
        [(jobs[r.job], uids[r.uid], r.reason) for r in plan.releases],
        sorted(uids[uid] for uid in plan.reclaimed_for),
    ]


@CALM
@given(inputs())
def test_the_same_is_decided(taken: PlanInput) -> None:
    """Down to the nodes and the trainers that go: aliases sort as the names."""
    without_names = anonymous(taken)
    assert _decisions(without_names, without_names.plan()) == _decisions(taken, taken.plan())


_WORDS = "SECRET"
_JOB = job(
    "SECRET-net",
    1,
    3,
    namespace="SECRET-team",
    queue="SECRET-queue",
    scheduler="SECRET-scheduler",
    account="SECRET-account",
    master_settings={"edl.training/x": "SECRET"},
    servers=ServerSpec(
        1,
        {"cpu": 1},
        "SECRET-claim",
        constraints=Constraints(((Requirement("SECRET.com/disk", "In", ("SECRET-ssd",)),),)),
        template_json=b"SECRET",
    ),
    master_template_json=b"SECRET",
    constraints=Constraints(
        (
            (
                Requirement("SECRET.com/pool", "In", ("SECRET-pool",)),
                Requirement("metadata.name", "In", ("SECRET-node",)),
                Requirement("SECRET.com/age", "Gt", ("7",)),
            ),
        ),
        (Toleration("SECRET.com/taint", "Equal", "SECRET-value", ""),),
        ("SECRET-bad-node",),
    ),
    failure_rules=(FailureRule(FailureAction.COUNT, "SECRET-container"),),
    status=JobStatus(conditions=(JobCondition("Suspended", "False", "X", "SECRET message"),)),
    accounting=TrainerAccounting(fatal="SECRET exit"),
    accounting_text="SECRET",
    refusal="pods SECRET-pod is forbidden",
    template_json=b"SECRET",
)
_POLICY = parse(
    """
overcommit: [{namespaces: [SECRET-*], queues: [SECRET-*], trainers: {cpu: 2.0}}]
training: [{name: SECRET-operator, labels: {SECRET: "*"}}]
scheduling: {schedulerName: SECRET-scheduler}
queues: [{name: SECRET-queue, namespaces: [SECRET-*]}]
fairness: {queueWeights: {SECRET-queue: 3}}
quotas: [{queue: SECRET-queue, requests: {cpu: 100}}, {namespace: SECRET-team, requests: {cpu: 90}}]
sizes: [{namespaces: [SECRET-t*], step: 2}, {namespaces: [other], step: 3}]
windows: [{name: SECRET-night, start: "22:00", end: "23:00", maxLoad: {cpu: 0.5}}]
nodePools: [{name: SECRET-pool, labels: {SECRET.com/pool: SECRET-pool}}]
autoscaling: {queues: {SECRET-queue: none}, vacate: {SECRET.com/pool: SECRET*}}
protectedNamespaces: [SECRET-system]
"""
)


def _secret() -> PlanInput:
    labels = {"SECRET.com/pool": "SECRET-pool", "SECRET.com/age": "9", "kubernetes.io/os": "SECRET"}
    nodes = (
        node(
            "SECRET-node", labels=labels, taints=(Taint("SECRET.com/taint", "SECRET-value", "X"),)
        ),
        node("SECRET-other"),
    )
    pods = [
        replace(pod, exits=(("SECRET-container", 1),), address="SECRET")
        for pod in trainers(_JOB, ["SECRET-node"])
    ]
    pods.append(service("SECRET-web", 3, namespace="SECRET-shop", nominated="SECRET-node"))
    cluster = ClusterState.of(Snapshot(nodes, tuple(pods), (replace(_JOB, error="SECRET word"),)))
    return PlanInput.of(cluster, _POLICY, NOW_S)


def test_no_name_is_left() -> None:
    """Of nodes, objects, labels, queues, containers; nor what users and the API server have written."""
    text = snapshot_file.dumps(SnapshotFile(anonymous(_secret())))
    assert b"SECRET" not in text
    assert b"kubernetes.io/os" in text  # a key that everyone has


def test_patterns_become_what_they_match() -> None:
    """Of namespaces, and of the labels of nodes; numbers that are compared stay numbers."""
    without_names = anonymous(_secret())
    policy, snapshot = without_names.policy, without_names.snapshot
    shop, team = snapshot.pods[0].namespace, snapshot.jobs[0].namespace
    assert policy.queues[0].namespaces == (shop, team)
    assert policy.sizes[0].namespaces == (team,)
    assert policy.sizes[1].namespaces == ("-",)
    assert policy.namespaces == ("*",)
    vacated = [n for n in snapshot.nodes if "edl.training/vacate" in n.labels]
    assert [n.name for n in vacated] == ["node-1"]
    assert "9" in vacated[0].labels.values()
    assert snapshot.jobs[0].constraints.terms[0][2].values == ("7",)


def test_what_is_remembered_is_about_the_same_objects() -> None:
    """The own times of pods, and the job at the head of the line, by their aliases."""
    line = Line(head=Head(_JOB.key, _JOB.uid, NOW_S))
    taken = replace(_secret(), history=History(line=line))
    times = {pod.uid: OwnTimes(created_s) for created_s, pod in enumerate(taken.snapshot.pods, 7)}

    without_names = anonymous(replace(taken, own_times=times))

    (owner,), pods = without_names.snapshot.jobs, without_names.snapshot.pods
    assert without_names.history.line.head == Head(owner.key, owner.uid, NOW_S)
    assert without_names.own_times is not None
    assert {uid: times.created_s for uid, times in without_names.own_times.items()} == {
        pod.uid: created_s for created_s, pod in enumerate(pods, 7)
    }


@pytest.mark.parametrize("record", [Job, Pod, Node, ServerSpec])
def test_every_text_of_a_record_is_known(record: type) -> None:
    """A new field that may hold a name is either replaced or named here."""
    texts = {field.name for field in fields(record) if field.type in (str, bytes)}
    assert texts == _TEXTS[record]


_TEXTS: dict[type, set[str]] = {
    Job: {
        *("namespace", "name", "uid", "queue", "account", "scheduler", "accounting_text"),
        *("resource_version", "template_json", "master_template_json", "error", "refusal"),
    },
    Pod: {
        *("namespace", "name", "uid", "node", "planned", "nominated", "owner_uid", "job"),
        *("address", "scheduler", "asked_scheduler"),
    },
    Node: {"name"},
    ServerSpec: {"claim", "template_json"},
}
"""All of them are replaced."""


def test_every_part_of_a_policy_is_known() -> None:
    """A new part that may hold a name is either replaced or named here."""
    without_names = {
        *("api_version", "kind", "tiers", "reserve", "stability", "admission"),
        *("ignored_resources", "network_policies", "objectives"),
    }
    replaced = {
        *("scheduling", "training", "overcommit", "fairness", "queues", "quotas", "sizes"),
        *("windows", "node_pools", "autoscaling", "namespaces", "protected_namespaces"),
    }
    assert Policy.model_fields.keys() == without_names | replaced
