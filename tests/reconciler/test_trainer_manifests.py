import copy
from dataclasses import replace
from typing import Any

import orjson
import pytest

from kube import decode
from policy.admission.mutation import pod_patch
from policy.cluster.snapshot import Job
from policy.document.model import NodePool, Policy
from policy.names import (
    ANNOTATION_NODE_REQUEST,
    ANNOTATION_UNCOMMITTED,
    DRAIN_BLOCKS,
    LABEL_JOB,
    LABEL_TIER,
    TRAINER_RESOURCE,
    NodeRequest,
    Role,
    Tier,
)
from policy.priority_classes import EDL_CLASSES
from policy.scheduling import UNMARKED, Scheduling
from reconciler.manifests import trainer as trainer_manifests
from tests.support import builders

MARKED = Scheduling(marked=True)
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "vision", "job-name": "other"}, "annotations": {"a": "b"}},
    "spec": {
        "restartPolicy": "Never",
        "priority": 7,
        "preemptionPolicy": "PreemptLowerPriority",
        "terminationGracePeriodSeconds": 30,
        "containers": [
            {"name": "main", "resources": {"requests": {"cpu": "5"}}},
            {"name": "side"},
        ],
    },
}


def _job(template: dict[str, Any] | None = None) -> Job:
    template_json = orjson.dumps(TEMPLATE if template is None else template)
    return replace(builders.job("net"), template_json=template_json)


def _spec(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of a trainer made from a template's spec."""
    pod_spec: dict[str, Any] = trainer_manifests.pod(
        _job({"spec": spec}), 0, Tier.SURPLUS, "n0", 10, scheduling=MARKED
    )["spec"]
    return pod_spec


def test_a_trainer_is_named_after_its_id() -> None:
    """The same id always means the same pod."""
    manifest = trainer_manifests.pod(_job(), 17, Tier.SURPLUS, "n0", 10)

    assert (
        manifest["metadata"]["name"] == "net-trainer-17" == trainer_manifests.pod_name(_job(), 17)
    )
    assert manifest["metadata"]["namespace"] == "ml"


_TIERS = [(Tier.SURPLUS, False), (Tier.SURPLUS, True), (Tier.GUARANTEED, False)]
"""Tiers, and whether the job has a low share."""


@pytest.mark.parametrize(("tier", "low_share"), _TIERS)
def test_a_trainer_is_read_back_as_what_it_is(tier: Tier, low_share: bool) -> None:
    """Role, tier, id, job and owner all arrive in the core's record."""
    manifest = trainer_manifests.pod(_job(), 3, tier, "n0", 10, low_share=low_share)
    manifest["metadata"]["uid"] = "u"
    decoded = decode.pod(manifest)

    assert (decoded.role, decoded.tier, decoded.trainer_id) == (Role.TRAINER, tier, 3)
    assert (decoded.job, decoded.owner_uid) == ("net", "uid-net")
    assert decoded.requests == {"cpu": 5000, "pods": 1}


@pytest.mark.parametrize(("tier", "low_share"), _TIERS)
@pytest.mark.parametrize("scheduling", [MARKED, UNMARKED, Scheduling("edl-scheduler", marked=True)])
def test_the_webhook_has_nothing_to_add(
    tier: Tier,
    low_share: bool,
    scheduling: Scheduling,
) -> None:
    """A trainer is complete, so that the webhook may be down."""
    manifest = trainer_manifests.pod(
        _job(), 3, tier, "n0", 10, scheduling=scheduling, low_share=low_share
    )
    values = EDL_CLASSES[manifest["spec"]["priorityClassName"]]
    filled = {"priority": values.value, "preemptionPolicy": values.preemption_policy}
    manifest["spec"] |= filled  # as the Priority plugin does

    change = pod_patch(manifest, "ml", Policy(), EDL_CLASSES, scheduling=scheduling)

    assert change.operations == ()


def test_the_users_labels_and_annotations_stay() -> None:
    """But those that say which Job a pod is of are the Job's own."""
    metadata = trainer_manifests.pod(_job(), 0, Tier.SURPLUS, "n0", 10)["metadata"]

    assert metadata["labels"]["team"] == "vision"
    assert metadata["labels"]["job-name"] == "net"
    assert metadata["labels"]["batch.kubernetes.io/controller-uid"] == "uid-net"
    assert metadata["annotations"] == {
        "a": "b",
        "edl.training/planned-node": "n0",
        "edl.training/scheduler": "default-scheduler",
    }


def test_a_trainer_that_waits_for_a_new_node_asks_for_nothing_it_cannot_have() -> None:
    """No planned node, and no resource of the extender; the webhook adds none either."""
    manifest = trainer_manifests.pod(
        _job(), 3, Tier.GUARANTEED, "", 10, node_request=NodeRequest.START
    )
    values = EDL_CLASSES[manifest["spec"]["priorityClassName"]]
    filled = {"priority": values.value, "preemptionPolicy": values.preemption_policy}
    manifest["spec"] |= filled  # as the Priority plugin does
    decoded = decode.pod(manifest | {"metadata": {**manifest["metadata"], "uid": "u"}})

    assert (decoded.node_request, decoded.planned) == (NodeRequest.START, "")
    assert "limits" not in manifest["spec"]["containers"][0]["resources"]
    assert pod_patch(manifest, "ml", Policy(), EDL_CLASSES).operations == ()


@pytest.mark.parametrize(
    ("scheduling", "node_request", "requires"),
    [
        pytest.param(MARKED, None, False, id="the extender decides"),
        pytest.param(MARKED, NodeRequest.START, True, id="waits for a node"),
        pytest.param(UNMARKED, None, True, id="no extender"),
    ],
)
def test_a_trainer_without_the_marker_requires_the_node_pools_by_itself(
    scheduling: Scheduling, node_request: NodeRequest | None, requires: bool
) -> None:
    """kube-scheduler does not ask the extender for it, which keeps all others there."""
    manifest = trainer_manifests.pod(
        _job(),
        *(0, Tier.GUARANTEED, "", 10),
        node_request=node_request,
        scheduling=scheduling,
        pools=(NodePool(name="gpu", labels={"pool": "gpu"}),),
    )

    assert ("requiredDuring" in str(manifest["spec"])) is requires


@pytest.mark.parametrize(("tier", "count"), [(Tier.SURPLUS, 0), (Tier.GUARANTEED, 2)])
def test_surplus_holds_no_node(tier: Tier, count: int) -> None:
    """Annotations of the template that keep autoscalers from a drain are for the minimum alone."""
    names = (*DRAIN_BLOCKS, ANNOTATION_NODE_REQUEST)
    template = {"metadata": {"annotations": dict.fromkeys(names, "start")}}
    annotations = trainer_manifests.pod(_job(template), 0, tier, "n0", 10)["metadata"][
        "annotations"
    ]

    assert sum(name in annotations for name in names) == count


def test_the_template_says_nothing_of_unsaved_work() -> None:
    """Victims are chosen by it, so a job would keep its trainers at the cost of others."""
    template = {"metadata": {"annotations": {ANNOTATION_UNCOMMITTED: "9999999", "own": "1"}}}
    manifest = trainer_manifests.pod(_job(template), 0, Tier.GUARANTEED, "n0", 10)

    assert ANNOTATION_UNCOMMITTED not in manifest["metadata"]["annotations"]
    assert manifest["metadata"]["annotations"]["own"] == "1"


def test_a_users_priority_is_taken_out() -> None:
    """A number beside another class would be refused by the API server."""
    spec = trainer_manifests.pod(_job(), 0, Tier.GUARANTEED, "n0", 10)["spec"]

    assert spec["priorityClassName"] == "edl-guaranteed"
    assert "priority" not in spec
    assert "preemptionPolicy" not in spec


@pytest.mark.parametrize(("template_s", "expected_s"), [(30, 10), (4, 4), (None, 10), (0, 0)])
def test_the_grace_is_capped(template_s: int | None, expected_s: int) -> None:
    """A reclaim waits for it; a shorter one, even none at all, is the user's to choose."""
    assert (
        _spec({"terminationGracePeriodSeconds": template_s})["terminationGracePeriodSeconds"]
        == expected_s
    )


def test_the_first_container_asks_the_extender() -> None:
    """One trainer, as request and limit, beside the user's own resources."""
    pod_spec = trainer_manifests.pod(_job(), 0, Tier.SURPLUS, "n0", 10, scheduling=MARKED)["spec"]
    first, second = pod_spec["containers"]

    assert first["resources"]["requests"] == {"cpu": "5", TRAINER_RESOURCE: "1"}
    assert first["resources"]["limits"] == {TRAINER_RESOURCE: "1"}
    assert "resources" not in second


def test_without_the_extender_a_trainer_prefers_its_planned_node() -> None:
    """No marker, which no scheduler would find; the user's own preferences stay."""
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    zone = {"weight": 5, "preference": {"matchExpressions": [{"key": "z", "operator": "Exists"}]}}
    template = {
        "containers": [{"name": "main"}],
        "affinity": {"nodeAffinity": {field: [zone]}, "podAffinity": {"x": "y"}},
    }
    pod_spec = trainer_manifests.pod(_job({"spec": template}), 0, Tier.SURPLUS, "n0", 10)["spec"]
    planned = {"key": "metadata.name", "operator": "In", "values": ["n0"]}

    assert pod_spec["affinity"]["nodeAffinity"][field] == [
        zone,
        {"weight": 100, "preference": {"matchFields": [planned]}},
    ]
    assert pod_spec["affinity"]["podAffinity"] == {"x": "y"}
    assert pod_spec["containers"] == [{"name": "main"}]
    assert "schedulerName" not in pod_spec


@pytest.mark.parametrize(("named", "scheduler"), [("", "edl"), ("volcano", "volcano")])
def test_trainers_ask_for_the_policys_scheduler(named: str, scheduler: str) -> None:
    """Unless the template names one, which gets no marker: nothing says that it would ignore it."""
    template = {"containers": [{"name": "main"}], **({"schedulerName": named} if named else {})}
    pod_spec = trainer_manifests.pod(
        _job({"spec": template}),
        *(0, Tier.SURPLUS, "n0", 10),
        scheduling=Scheduling("edl", marked=True),
    )["spec"]

    assert pod_spec["schedulerName"] == scheduler
    assert ("resources" in pod_spec["containers"][0]) == (scheduler == "edl")


@pytest.mark.parametrize("resources", [None, {}, {"limits": None}])
def test_containers_without_requests_ask_too(resources: dict[str, Any] | None) -> None:
    """Null and nothing mean the same in the API."""
    (container,) = _spec({"containers": [{"name": "main", "resources": resources}]})["containers"]

    assert container["resources"]["limits"] == {TRAINER_RESOURCE: "1"}


@pytest.mark.parametrize("template", [{}, {"metadata": None, "spec": {"containers": None}}])
def test_a_bare_template_makes_a_pod(template: dict[str, Any]) -> None:
    """The API server reports what is wrong with it."""
    assert trainer_manifests.pod(_job(template), 0, Tier.SURPLUS, "n0", 10)["kind"] == "Pod"


def test_the_template_is_not_touched() -> None:
    """All trainers of a job share it."""
    before = copy.deepcopy(TEMPLATE)
    trainer_manifests.pod(_job(), 0, Tier.SURPLUS, "n0", 10)

    assert before == TEMPLATE


def test_the_owner_is_the_job() -> None:
    """As controller, so that garbage collection and `kubectl logs job/…` work."""
    (owner,) = trainer_manifests.pod(_job(), 0, Tier.SURPLUS, "n0", 10)["metadata"][
        "ownerReferences"
    ]

    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "net", "uid-net")
    assert owner["controller"] is True
    assert owner["blockOwnerDeletion"] is True


def test_the_budget_keeps_the_minimum_of_guaranteed_trainers() -> None:
    """Surplus is not covered: it may go at any time."""
    manifest = trainer_manifests.disruption_budget(builders.job("net", 4))

    assert manifest["spec"]["minAvailable"] == 4
    assert manifest["spec"]["selector"]["matchLabels"] == {
        LABEL_JOB: "net",
        LABEL_TIER: "guaranteed",
    }
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "uid-net"
    assert manifest["metadata"]["ownerReferences"][0]["controller"] is True
