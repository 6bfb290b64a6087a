"""What is read of pods that wait for a place, and of nodes that may be lost."""

import copy
from typing import Any

import pytest

from kube import decode
from policy.names import CHECK_RESOURCE, TRAINER_RESOURCE
from tests.kube.items import plain_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "only_resources"),
    [
        ({}, True),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, True),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, False),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, False),
        ({"resourceClaims": [{"name": "gpu"}]}, False),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, False),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, False),
        ({"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1}]}}}, True),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}, True),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, False),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, True),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}]}, False),
        ({"initContainers": [{"ports": [{"hostPort": 1}], "restartPolicy": "Always"}]}, False),
        ({"initContainers": [{"ports": [{"hostPort": 1}]}]}, True),
        ({"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "d"}}]}, False),
        ({"schedulingGroup": {"podGroupName": "g"}}, False),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 1}]}]}, True),
    ],
)
def test_what_a_pod_asks_for_besides_resources_is_seen(
    spec: dict[str, Any], *, only_resources: bool
) -> None:
    """Freed capacity does not help it for sure."""
    obj = plain_pod()
    obj["spec"] |= spec

    assert decode.pod(obj).only_resources is only_resources


@pytest.mark.parametrize(
    ("status", "reason", "refused"),
    [
        ("False", "Unschedulable", True),
        ("False", "SchedulingGated", False),
        ("True", "", False),
    ],
)
def test_a_pod_that_kube_scheduler_has_tried_is_known(
    status: str, reason: str, *, refused: bool
) -> None:
    """By its condition."""
    condition = {"type": "PodScheduled", "status": status, "reason": reason}

    assert decode.pod(plain_pod(conditions=[condition])).refused is refused


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("True", (True, False, False)),
        ("False", (False, False, True)),
        ("Unknown", (False, True, True)),
    ],
)
def test_a_node_that_is_not_ready_tells_since_when_or_nothing(
    status: str, expected: tuple[bool, bool, bool]
) -> None:
    """A kubelet that reports something lives; Unknown means that none reports."""
    stamp = "2026-11-20T10:00:00Z"
    condition = {"type": "Ready", "status": status, "lastTransitionTime": stamp}
    node = decode.node({"metadata": {"name": "n"}, "status": {"conditions": [condition]}})

    assert (node.ready, node.silent, node.unready_s == decode.seconds(stamp)) == expected


def test_a_deferred_resize_is_read() -> None:
    """The pod counts with its larger size, of which its node lacks a part."""
    main = {"name": "main", "resources": {"requests": {"cpu": "4"}}}
    granted = {"requests": {"cpu": "1"}}
    obj = plain_pod(
        containerStatuses=[
            {"name": "main", "allocatedResources": granted["requests"], "resources": granted}
        ],
        conditions=[{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
    )
    obj["spec"]["containers"] = [main]
    pod = decode.pod(obj)

    assert (pod.requests["cpu"], pod.resize) == (4000, {"cpu": 3000})
    assert decode.pod(plain_pod()).resize is None


@pytest.mark.parametrize(
    ("message", "insufficient"),
    [
        ("0/2 nodes are available: 2 Insufficient cpu.", ()),
        ("0/2 nodes are available: 2 Insufficient edl.training/trainer.", (TRAINER_RESOURCE,)),
        (
            f"2 Insufficient {CHECK_RESOURCE}, 2 Insufficient {TRAINER_RESOURCE}.",
            (TRAINER_RESOURCE, CHECK_RESOURCE),
        ),
    ],
)
def test_resources_of_ours_that_a_scheduler_calls_insufficient_are_read(
    message: str, insufficient: tuple[str, ...]
) -> None:
    """As kube-scheduler writes them into the condition PodScheduled."""
    refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    obj = plain_pod()
    obj["status"] = {"conditions": [refusal | {"message": message}]}

    assert decode.pod(obj).insufficient == insufficient
    assert decode.pod(obj).refused


def test_a_pod_that_requests_the_marker_is_marked() -> None:
    """In whichever container."""
    obj = plain_pod()
    marked = copy.deepcopy(obj)
    marked["spec"]["containers"].append({"resources": {"requests": {TRAINER_RESOURCE: "1"}}})

    assert (decode.pod(obj).marked, decode.pod(marked).marked) == (False, True)
