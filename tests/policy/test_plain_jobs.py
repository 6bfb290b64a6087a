"""Jobs that the built-in controller runs: their pods carry no role and no tier."""

from dataclasses import replace

import pytest

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Phase, Pod, Snapshot
from policy.document.model import Policy
from policy.names import Role, Tier
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, job, node, service, shape, trainers

_PLAIN = job("plain", 1, 9, managed=False, parallelism=3)
_FREE = Policy.model_validate({"reserve": {"maxLoad": {"cpu": 1.0}}})


def plain_pod(number: int, where: str) -> Pod:
    """A pod that the Job controller made."""
    return Pod(
        "ml",
        f"plain-{number}",
        f"uid-{number}",
        shape(5),
        node=where,
        phase=Phase.RUNNING if where else Phase.PENDING,
        created_s=float(number),
        owner_uid=_PLAIN.uid,
    )


def test_the_oldest_count_as_guaranteed() -> None:
    """The first `min` of its pods are guaranteed, the others surplus, all of them trainers."""
    pods = tuple(plain_pod(i, "n0") for i in range(3))
    live = ClusterState.of(Snapshot((node("n0", 18),), pods, (_PLAIN,))).trainers(_PLAIN)

    assert [(pod.role, pod.tier) for pod in live] == [
        (Role.TRAINER, Tier.SURPLUS),
        (Role.TRAINER, Tier.SURPLUS),
        (Role.TRAINER, Tier.GUARANTEED),
    ]


def test_pods_that_left_are_forgotten() -> None:
    """Dropping one after the other leaves no trace of their owner."""
    cluster = ClusterState.of(Snapshot((node("n0", 18),), (plain_pod(0, "n0"), plain_pod(1, "n0"))))

    cluster.drop_pod("uid-0")
    assert list(cluster.owned[f"ml/{_PLAIN.uid}"]) == ["uid-1"]
    cluster.drop_pod("uid-1")
    assert cluster.owned == {}


@pytest.mark.parametrize(("cpu", "target"), [(5, 2), (14, 3)])
def test_labels_hide_no_pod_of_its(cpu: float, target: int) -> None:
    """Pods labelled as trainers, or of a class of EDL, count as before, once each.

    With 1 CPU free and two surplus trainers of 5 CPU, a service of 14 CPU gains nothing by their end.
    """
    labelled = replace(plain_pod(2, "n0"), role=Role.TRAINER, tier=Tier.SURPLUS, job="plain")
    other = replace(plain_pod(1, "n0"), role=Role.PSERVER, tier=Tier.SUPPORT, job="other")
    pods = (plain_pod(0, "n0"), other, labelled, service("web", cpu, priority=100))
    cluster = ClusterState.of(Snapshot((node("n0", 16),), pods, (_PLAIN,)))

    assert len(cluster.trainers(_PLAIN)) == 3
    assert plan(cluster, _FREE, NOW_S).jobs[0].target == target


def test_pods_of_another_namespace_are_not_its() -> None:
    """Whoever may create pods there can name any controller."""
    foreign = replace(plain_pod(1, "n0"), namespace="shop")
    pods = (plain_pod(0, "n0"), foreign)
    cluster = ClusterState.of(Snapshot((node("n0", 18),), pods, (_PLAIN,)))

    assert [pod.uid for pod in cluster.trainers(_PLAIN)] == ["uid-0"]


def test_its_number_moves_by_its_pods_wherever_they_are() -> None:
    """Pods on no node, or on one that is gone, count as trainers but hold no room."""
    pods = (plain_pod(0, "n0"), plain_pod(1, "gone"), plain_pod(2, ""))
    cluster = ClusterState.of(Snapshot((node("n0", 23),), pods, (_PLAIN,)))

    (job_plan,) = plan(cluster, _FREE, NOW_S).jobs

    assert (job_plan.live, job_plan.target) == (3, 4)


def test_a_pause_in_growth_is_told_only_to_those_it_holds() -> None:
    """While enough trainers are on their way, a job at its max is at its max."""
    full, hungry = job("full", 20, 20), job("hungry", 1, 60)
    pods = [*trainers(full, ["n0"] * 20), *trainers(hungry, ["n0"])]
    cluster = ClusterState.of(Snapshot((node("n0", 200),), tuple(pods), (full, hungry)))

    reasons = {job_plan.key: job_plan.reason for job_plan in plan(cluster, _FREE, NOW_S).jobs}

    assert reasons == {"ml/full": Reason.AT_MAX, "ml/hungry": Reason.GROWING}
