import copy
from dataclasses import replace
from typing import Any

import pytest

from kube import decode
from policy.model import Policy
from policy.mutation import EDL_CLASSES, pod_patch
from policy.names import LABEL_JOB, LABEL_TIER, TRAINER_RESOURCE, Role, Tier
from policy.snapshot import Job
from reconciler import pods
from tests.support import builders

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
    return replace(builders.job("net"), template=TEMPLATE if template is None else template)


def _spec(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of a trainer made from a template's spec."""
    made: dict[str, Any] = pods.trainer(_job({"spec": spec}), 0, Tier.SURPLUS, "n0", 10)["spec"]
    return made


def test_a_trainer_is_named_after_its_id() -> None:
    """The same id always means the same pod."""
    made = pods.trainer(_job(), 17, Tier.SURPLUS, "n0", 10)

    assert made["metadata"]["name"] == "net-trainer-17" == pods.name(_job(), 17)
    assert made["metadata"]["namespace"] == "ml"


@pytest.mark.parametrize("tier", [Tier.SURPLUS, Tier.GUARANTEED])
def test_a_trainer_is_read_back_as_what_it_is(tier: Tier) -> None:
    """Role, tier, id, job and owner all arrive in the core's record."""
    made = pods.trainer(_job(), 3, tier, "n0", 10)
    made["metadata"]["uid"] = "u"
    found = decode.pod(made)

    assert (found.role, found.tier, found.trainer_id) == (Role.TRAINER, tier, 3)
    assert (found.job, found.owner_uid) == ("net", "uid-net")
    assert found.requests == {"cpu": 5000, "pods": 1}


@pytest.mark.parametrize("tier", [Tier.SURPLUS, Tier.GUARANTEED])
def test_the_webhook_has_nothing_to_add(tier: Tier) -> None:
    """A trainer is complete, so that the webhook may be down."""
    made = pods.trainer(_job(), 3, tier, "n0", 10)
    values = EDL_CLASSES[made["spec"]["priorityClassName"]]
    filled = {"priority": values.value, "preemptionPolicy": values.preemption_policy}
    made["spec"] |= filled  # as the Priority plugin does

    assert pod_patch(made, "ml", Policy(), EDL_CLASSES).operations == ()


def test_the_users_labels_and_annotations_stay() -> None:
    """But those that say which Job a pod is of are the Job's own."""
    metadata = pods.trainer(_job(), 0, Tier.SURPLUS, "n0", 10)["metadata"]

    assert metadata["labels"]["team"] == "vision"
    assert metadata["labels"]["job-name"] == "net"
    assert metadata["labels"]["batch.kubernetes.io/controller-uid"] == "uid-net"
    assert metadata["annotations"] == {"a": "b", "edl.training/planned-node": "n0"}


def test_a_users_priority_is_taken_out() -> None:
    """A number beside another class would be refused by the API server."""
    spec = pods.trainer(_job(), 0, Tier.GUARANTEED, "n0", 10)["spec"]

    assert spec["priorityClassName"] == "edl-guaranteed"
    assert "priority" not in spec
    assert "preemptionPolicy" not in spec


@pytest.mark.parametrize(("asked", "given"), [(30, 10), (4, 4), (None, 10), (0, 0)])
def test_the_grace_is_capped(asked: int | None, given: int) -> None:
    """A reclaim waits for it; a shorter one, even none at all, is the user's to choose."""
    assert _spec({"terminationGracePeriodSeconds": asked})["terminationGracePeriodSeconds"] == given


def test_the_first_container_asks_the_extender() -> None:
    """One trainer, as request and limit, beside what the user asks for."""
    first, second = pods.trainer(_job(), 0, Tier.SURPLUS, "n0", 10)["spec"]["containers"]

    assert first["resources"]["requests"] == {"cpu": "5", TRAINER_RESOURCE: "1"}
    assert first["resources"]["limits"] == {TRAINER_RESOURCE: "1"}
    assert "resources" not in second


@pytest.mark.parametrize("resources", [None, {}, {"limits": None}])
def test_containers_without_requests_ask_too(resources: dict[str, Any] | None) -> None:
    """Null and nothing mean the same in the API."""
    (container,) = _spec({"containers": [{"name": "main", "resources": resources}]})["containers"]

    assert container["resources"]["limits"] == {TRAINER_RESOURCE: "1"}


@pytest.mark.parametrize("template", [{}, {"metadata": None, "spec": {"containers": None}}])
def test_a_bare_template_makes_a_pod(template: dict[str, Any]) -> None:
    """What is wrong with it the API server says."""
    assert pods.trainer(_job(template), 0, Tier.SURPLUS, "n0", 10)["kind"] == "Pod"


def test_the_template_is_not_touched() -> None:
    """All trainers of a job share it."""
    before = copy.deepcopy(TEMPLATE)
    pods.trainer(_job(), 0, Tier.SURPLUS, "n0", 10)

    assert before == TEMPLATE


def test_the_owner_is_the_job() -> None:
    """As controller, so that garbage collection and `kubectl logs job/…` work."""
    (owner,) = pods.trainer(_job(), 0, Tier.SURPLUS, "n0", 10)["metadata"]["ownerReferences"]

    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "net", "uid-net")
    assert owner["controller"] is True
    assert owner["blockOwnerDeletion"] is True


def test_the_budget_keeps_the_minimum_of_guaranteed_trainers() -> None:
    """Surplus is not covered: it may go at any time."""
    made = pods.budget(builders.job("net", 4))

    assert made["spec"]["minAvailable"] == 4
    assert made["spec"]["selector"]["matchLabels"] == {LABEL_JOB: "net", LABEL_TIER: "guaranteed"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-net"
    assert made["metadata"]["ownerReferences"][0]["controller"] is True
