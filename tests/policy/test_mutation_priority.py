"""Which priority class admission gives to a training pod."""

from collections.abc import Mapping
from typing import Any

import jsonpatch
import pytest

from policy.admission.mutation import Mutation, pod_patch
from policy.document.model import Policy
from policy.names import CLASS_SURPLUS
from policy.priority_classes import EDL_CLASSES, PriorityClassValues
from policy.scheduling import Scheduling
from tests.webhook.vectors import thing

_PRIORITY_FIELDS = ("priorityClassName", "priority", "preemptionPolicy")


def _changed(
    pod: dict[str, Any], classes: Mapping[str, PriorityClassValues] = EDL_CLASSES
) -> tuple[dict[str, Any], Mutation]:
    change = pod_patch(pod, "training", Policy(), classes, scheduling=Scheduling(marked=True))
    patched: dict[str, Any] = jsonpatch.JsonPatch(list(change.operations)).apply(pod)
    return patched, change


def test_missing_class_leaves_priority_alone() -> None:
    """Without the live class any of the three fields would be refused: nothing, and a warning."""
    pod, change = _changed(thing("pod-create-builtin-job"), classes={})

    assert "priorityClassName" not in pod["spec"]
    assert pod["spec"]["priority"] == 0
    assert change.warnings == (
        "PriorityClass edl-surplus does not exist (yet): the pod keeps its priority",
    )


def test_live_values_win_over_shipped_ones() -> None:
    """An admin who changed the class gets pods that the Priority plugin accepts."""
    classes = {CLASS_SURPLUS: PriorityClassValues(-50, "PreemptLowerPriority")}

    spec = _changed(thing("pod-create-builtin-job"), classes=classes)[0]["spec"]

    assert (spec["priority"], spec["preemptionPolicy"]) == (-50, "PreemptLowerPriority")


def test_own_class_is_replaced_with_a_warning() -> None:
    """A training pod cannot put itself above services."""
    pod = thing("pod-create-builtin-job")
    pod["spec"] |= {"priorityClassName": "very-high", "priority": 100_000}

    after, change = _changed(pod)

    assert after["spec"]["priorityClassName"] == "edl-surplus"
    assert change.warnings == (
        "changed priorityClassName from very-high to edl-surplus, so that services can preempt training",
    )


@pytest.mark.parametrize(
    "label", [{"edl.training/role": "pserver"}, {"edl.training/tier": "guaranteed"}]
)
@pytest.mark.parametrize(
    ("own", "after"),
    [
        (("batch", -1_000_000, "Never"), ("batch", -1_000_000, "Never")),
        (
            ("batch", -1_000_000, "PreemptLowerPriority"),
            ("batch", -1_000_000, "PreemptLowerPriority"),
        ),
        (("batch", -9, "PreemptLowerPriority"), ("edl-surplus", -1000, "Never")),
        (("quiet", 0, "Never"), ("edl-surplus", -1000, "Never")),
    ],
)
def test_labels_never_raise_priority_or_grant_preemption(
    own: tuple[str, int, str], after: tuple[str, int, str], label: dict[str, str]
) -> None:
    """A pod whose own class is lower, or does not preempt, counts as surplus."""
    pod = thing("pod-create-trainer")
    pod["metadata"]["labels"] = {"edl.training/job": "net", **label}
    pod["spec"] |= dict(zip(_PRIORITY_FIELDS, own, strict=True))
    changed, change = _changed(pod)

    assert tuple(changed["spec"][name] for name in _PRIORITY_FIELDS) == after
    assert changed["metadata"]["labels"]["edl.training/tier"] == "surplus"
    assert changed["metadata"]["labels"]["edl.training/preemptible"] == "true"
    assert any("do not raise the priority" in warning for warning in change.warnings)
    assert not _changed(changed)[1].operations


@pytest.mark.parametrize("tier", ["surplus", "guaranteed"])
def test_surplus_of_the_second_class_keeps_it(tier: str) -> None:
    """A label that asks for more gives it nothing, and it is told so."""
    pod = thing("pod-create-trainer")
    pod["metadata"]["labels"] |= {"edl.training/tier": tier}
    own = ("edl-surplus-low-share", -900, "Never")
    pod["spec"] |= dict(zip(_PRIORITY_FIELDS, own, strict=True))
    changed, change = _changed(pod)

    assert tuple(changed["spec"][name] for name in _PRIORITY_FIELDS) == own
    assert changed["metadata"]["labels"]["edl.training/tier"] == "surplus"
    assert bool(change.warnings) == (tier == "guaranteed")


def test_default_class_is_replaced_in_silence() -> None:
    """The user did not choose the cluster's default class, so replacing it gives no warning."""
    pod = thing("pod-create-builtin-job")
    pod["spec"] |= {"priorityClassName": "normal", "priority": 10}

    change = _changed(
        pod, classes={**EDL_CLASSES, "normal": PriorityClassValues(10, "Never", True)}
    )[1]

    assert change.warnings == ()
