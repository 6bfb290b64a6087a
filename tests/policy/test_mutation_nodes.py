"""What admission does to pods so that autoscalers add and drain nodes as they should."""

from typing import Any

import jsonpatch

from policy.admission.mutation import pod_patch
from policy.document.model import Policy
from policy.names import ANNOTATION_NODE_REQUEST, DRAIN_BLOCKS, TRAINER_RESOURCE
from policy.priority_classes import EDL_CLASSES
from tests.webhook.vectors import thing


def _changed(pod: dict[str, Any]) -> dict[str, Any]:
    change = pod_patch(pod, "training", Policy(), EDL_CLASSES)
    patched: dict[str, Any] = jsonpatch.JsonPatch(list(change.operations)).apply(pod)
    return patched


def test_a_pod_that_waits_for_a_new_node_requests_no_trainer() -> None:
    """No node that an autoscaler can add has that resource."""
    pod = thing("pod-create-trainer")
    pod["metadata"]["annotations"] = {ANNOTATION_NODE_REQUEST: "start"}

    first = _changed(pod)["spec"]["containers"][0]

    assert TRAINER_RESOURCE not in first["resources"].get("limits", {})


def test_surplus_holds_no_node() -> None:
    """Annotations that keep autoscalers from a drain go; those of guaranteed trainers stay."""
    blocks = dict.fromkeys(DRAIN_BLOCKS, "x")
    pods = [thing("pod-create-builtin-job"), thing("pod-create-trainer")]
    for pod in pods:
        pod["metadata"]["annotations"] = {"a": "b", **blocks}

    surplus, guaranteed = (_changed(pod)["metadata"]["annotations"] for pod in pods)

    assert surplus == {"a": "b"}
    assert guaranteed == {"a": "b", **blocks}
