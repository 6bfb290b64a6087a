"""The view of a pod that measuring works on."""

from typing import Any

import pytest

from e2e.measure.pods import Kind, view
from policy.cluster.snapshot import Phase
from policy.names import LABEL_JOB, LABEL_ROLE, LABEL_TIER


def _pod(namespace: str = "training", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"uid": "u1", "name": "p", "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "500m"}}}, {}]},
    }


@pytest.mark.parametrize(
    ("pod", "kind"),
    [
        (_pod("kube-system"), Kind.SYSTEM),
        (_pod("services"), Kind.SERVICE),
        (_pod(**{LABEL_ROLE: "trainer"}), Kind.TRAINER),
        (_pod(**{"batch.kubernetes.io/job-name": "job-1"}), Kind.TRAINER),
        (_pod(**{LABEL_ROLE: "pserver"}), Kind.SUPPORT),
        (_pod(**{LABEL_ROLE: "master"}), Kind.SUPPORT),
    ],
)
def test_kinds(pod: dict[str, Any], kind: Kind) -> None:
    """The role label tells training apart, the namespace system pods from services."""
    assert view(pod).kind is kind


def test_a_trainer_is_surplus_unless_its_tier_says_otherwise() -> None:
    """Plain ReplicaSets carry no tier: everybody may preempt them."""
    trainer = {LABEL_ROLE: "trainer", LABEL_JOB: "job-1"}
    assert view(_pod(**trainer)).surplus
    assert not view(_pod(**trainer, **{LABEL_TIER: "guaranteed"})).surplus
    assert not view(_pod("services")).surplus


def test_cpu_is_the_sum_of_containers_and_nonsense_counts_nothing() -> None:
    """Containers without requests or with unreadable ones add 0."""
    pod = _pod()
    pod["spec"]["containers"].append({"resources": {"requests": {"cpu": "much"}}})
    assert view(pod).cpu_millis == 500


def test_a_limit_is_what_may_be_used() -> None:
    """A container without one may use any amount, and counts with its request."""
    pod = _pod()
    pod["spec"]["containers"].append(
        {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}}}
    )
    pod_view = view(pod)
    assert (pod_view.cpu_millis, pod_view.limit_millis) == (1500, 2000)


def test_a_new_pod_waits() -> None:
    """Without a status a pod is pending."""
    pod_view = view(_pod())
    assert (pod_view.waiting, pod_view.at_work, pod_view.ended) == (True, False, False)


def test_a_running_pod_under_deletion_is_not_at_work() -> None:
    """It holds capacity, and its disruption's reason is known."""
    pod = _pod()
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pod["spec"]["nodeName"] = "node-000"
    pod["status"] = {
        "phase": "Running",
        "nominatedNodeName": "node-001",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
        ],
    }
    pod_view = view(pod)
    assert (pod_view.at_work, pod_view.waiting, pod_view.phase) == (False, False, Phase.RUNNING)
    assert (pod_view.node, pod_view.nominated) == ("node-000", "node-001")
    assert pod_view.disruption == "PreemptionByScheduler"
