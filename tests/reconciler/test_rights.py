"""What `deploy/` allows the reconciler is what its code does; `Process` runs with just that."""

from typing import Any

import pytest
import yaml

from kube import request
from kube.lease import Elector
from kube.request import CONFIGMAPS, JOBS, PODS
from policy.names import (
    ANNOTATION_MIN,
    ANNOTATION_SERVERS,
    POLICY_CONFIGMAP,
    POLICY_KEY,
    SYSTEM_NAMESPACE,
)
from policy.records import Record
from reconciler.app import LEASE
from reconciler.masters.reports import MasterReport, ReportedState
from reconciler.records.namespace_log import SEGMENT_BYTES
from tests.reconciler import objects, training_jobs
from tests.reconciler.world import Process, World
from tests.support import rbac
from tests.support.rbac import RestrictedApi

_CPU = "edl.training/parameter-server-cpu"
_MEMORY = "edl.training/parameter-server-memory"
_SERVERS = {ANNOTATION_SERVERS: "1", _CPU: "1", _MEMORY: "1Gi"}
_NAMED = rbac.DEPLOY / "components" / "namespaces"
_ISOLATED = rbac.DEPLOY / "components" / "network-policies"
_CHECKED = '{"reserve": {"maxLoad": {"cpu": 1}}, "scheduling": {"extender": "auto"}}'


@pytest.fixture
def world() -> World:
    """Room for six trainers, and a scheduler that is asked about the extender."""
    return World(16, 16, policy=_CHECKED)


def _use_everything(world: World, process: Process) -> None:
    """A life in which the reconciler does all that it can."""
    elector = Elector(RestrictedApi(world.api, process.account), "edl-system", LEASE, "me")
    elector.tick()  # creates the lease
    elector.tick()
    elector.release()
    uid = world.add_job("net", 2, 4, master=True, annotations=_SERVERS)["metadata"]["uid"]
    world.ask(request.create(PODS, "ml", objects.pod("net-ps-0", namespace="ml")))
    process.run(3)
    world.ask(request.delete(PODS, "ml", "net-ps-0", grace_s=0))  # the name was taken
    process.run(12)
    poller = process.loop.components.masters._poller  # noqa: SLF001 - its thread is tested with real sockets
    for _ in range(3):
        uncommitted = {pod.trainer_id: 500.0 for pod in world.pods("net")}
        report = MasterReport(ReportedState.WORK, world.clock.now_s, uncommitted=uncommitted)
        poller._reports[uid] = report  # noqa: SLF001 - see above
        world.clock.advance(200)  # objects are checked again
        process.run(2)
    world.add_services(4, cpu=5)  # surplus is evicted
    process.run(10)
    change: dict[str, Any] = {"metadata": {"annotations": {ANNOTATION_MIN: "1"}}}
    world.change_job("net", change)
    process.run(10)
    poller._outcome(next(iter(poller._targets.values())))  # noqa: SLF001 - see above
    poller._reports[uid] = MasterReport(ReportedState.DONE, world.clock.now_s)  # noqa: SLF001 - see above
    process.run(10)  # trainers that linger are deleted
    _use_training_jobs(world, process.account)
    invalid = {"data": {POLICY_KEY: "unknown: 1"}}
    world.ask(request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, invalid))
    process.run(1)  # the event about it is in EDL's namespace
    process.write_events()
    _keep_records(world, process)


def _keep_records(world: World, process: Process) -> None:
    """Of the job's namespace and of the cluster; old ones are deleted."""
    for log in (process.records("ml"), process.records("edl-system")):
        assert log
    for namespace in ("ml", "edl-system"):
        for number in range(2):
            record = Record(world.clock.now_s + number, "job ml/net", "Test", "x" * SEGMENT_BYTES)
            process.loop._observer._inbox.put(namespace, record)  # noqa: SLF001 - a full segment
    process.writer.round()
    world.clock.advance(8 * 86_400)
    process.writer.round()


def _use_training_jobs(world: World, account: rbac.Account) -> None:
    """One that finds its name taken by a Job that no watch shows, is created, ends, and goes."""
    training = training_jobs.Controller(world, account)
    world.add_job("digits", 1, 1)
    training_jobs.add_training_job(world, training_jobs.new_training_job(ttlSecondsAfterFinished=0))
    training.settle()
    world.ask(request.delete(request.JOBS, "ml", "digits"))
    world.clock.advance(60)
    training.settle()
    training_jobs.end_job(world, "Complete", "CompletionsReached")
    training.settle()
    training.settle()


def test_every_right_is_used(world: World, process: Process) -> None:
    """Calls without a right fail in every test of `Process`; one that nothing uses fails here."""
    _use_everything(world, process)

    assert process.account.permissions - process.account.used == set()


def test_no_secret_but_edls_own_is_readable(process: Process) -> None:
    """One Secret by its name; and nothing that reads is granted for all of them."""
    readable = [
        (grant.namespace, grant.rule.get("resourceNames"))
        for grant in process.account.grants
        if "secrets" in grant.rule["resources"] and grant.rule["verbs"] != ["create"]
    ]

    assert readable == [("edl-system", ["edl-job-tokens"])]


def test_network_policies_need_a_right_that_is_off_by_default() -> None:
    """With component and policy each job with a master gets one; without the right, an event."""
    (patch,) = rbac.documents(_ISOLATED)[0]["patches"]
    (operation,) = yaml.safe_load(patch["patch"])
    base = [
        document | {"rules": [*document["rules"], operation["value"]]}
        if document["kind"] == "ClusterRole"
        and document["metadata"]["name"] == "edl-reconciler-jobs"
        else document
        for document in rbac.documents()
    ]
    document = '{"networkPolicies": true, "scheduling": {"extender": "auto"}}'
    world = World(16, 16, policy=document)
    process = Process(world, account=rbac.account("edl-reconciler", base))
    _use_everything(world, process)
    process.stop()
    (created,) = world.api.all(request.NETWORKPOLICIES)

    assert process.account.permissions - process.account.used == set()
    assert created["metadata"]["name"] == "net-edl-master"
    assert "networkpolicies" not in {
        resource for _, _, resource, _ in rbac.account("edl-reconciler").permissions
    }


def _named(*namespaces: str) -> rbac.Account:
    """The reconciler's account with deploy/components/namespaces, bound in these."""
    (patch,) = rbac.documents(_NAMED)[0]["patches"]
    deleted = yaml.safe_load(patch["patch"])
    (binding,) = (d for d in rbac.documents(_NAMED) if d["kind"] == "RoleBinding")
    base = [
        document
        for document in rbac.documents()
        if (document["kind"], document.get("metadata", {}).get("name"))
        != (deleted["kind"], deleted["metadata"]["name"])
    ]
    bindings = [
        {**binding, "metadata": {**binding["metadata"], "namespace": namespace}}
        for namespace in namespaces
    ]
    return rbac.account("edl-reconciler", [*base, *bindings])


def test_edl_can_be_kept_to_named_namespaces() -> None:
    """There it does everything with rights of that namespace; elsewhere it tries nothing."""
    document = '{"namespaces": ["ml", "edl-system"], "scheduling": {"extender": "auto"}}'
    world = World(16, 16, policy=document)
    elsewhere = objects.job("net", 1, 2, managed=False)
    elsewhere["metadata"]["namespace"] = "vision"
    world.ask(request.create(JOBS, "vision", elsewhere))
    process = Process(world, account=_named("ml"))
    _use_everything(world, process)
    process.stop()
    written = {
        w.path.split("/namespaces/")[1].split("/")[0]
        for w in world.api.writes
        if "/namespaces/" in w.path
    }

    assert process.account.permissions - process.account.used == set()
    assert written == {"ml", "edl-system"}
    assert all(
        verb in ("list", "watch") or resource == "priorityclasses"
        for grant in process.account.grants
        if not grant.namespace
        for resource in grant.rule["resources"]
        for verb in grant.rule["verbs"]
    )


def test_no_rule_has_a_wildcard() -> None:
    """What a rule allows is what it says."""
    for document in rbac.documents():
        for rule in document.get("rules", ()):
            words = [*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule.get("verbs", ())]
            assert not {"*", "bind", "escalate", "impersonate"} & set(words)
