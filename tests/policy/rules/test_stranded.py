"""Guaranteed trainers on cordoned nodes are replaced before a drain takes them."""

from dataclasses import replace

from policy.cluster_state import ClusterState
from policy.model import Policy
from policy.names import Role, Tier
from policy.planner import plan
from policy.snapshot import Job, Node, Phase, Pod, Snapshot

TRAINER = {"cpu": 5000, "pods": 1}


def cluster(*, cordoned: bool, maximum: int = 2) -> ClusterState:
    """Two nodes of two slots; both guaranteed trainers of the one job on the first."""
    room = {"cpu": 10_500, "pods": 110}
    nodes = (Node("n0", room, unschedulable=cordoned), Node("n1", room))
    job = Job("ns", "a", "uid-a", 2, maximum, TRAINER)
    pods = tuple(
        Pod(
            "ns",
            f"a-trainer-{i}",
            f"uid-{i}",
            TRAINER,
            -8,
            node="n0",
            phase=Phase.RUNNING,
            ready=True,
            owner_uid="uid-a",
            job="a",
            role=Role.TRAINER,
            tier=Tier.GUARANTEED,
            trainer_id=i,
        )
        for i in range(2)
    )
    return ClusterState.of(Snapshot(nodes, pods, (job,)))


def test_a_cordon_makes_replacements_first() -> None:
    """Both guaranteed trainers of a cordoned node get a replacement, none is released."""
    new_plan = plan(cluster(cordoned=True), Policy(), 1000.0)

    assert [(c.tier, c.count) for c in new_plan.creates] == [(Tier.GUARANTEED, 2)]
    assert new_plan.releases == ()


def test_the_replacements_stay_while_the_cordon_lasts() -> None:
    """A job at its max keeps both the stranded trainers and their replacements: no flapping."""
    state = cluster(cordoned=True)
    for i in (2, 3):
        old = state.pods["uid-0"]
        state.put_pod(replace(old, uid=f"uid-{i}", name=f"a-trainer-{i}", trainer_id=i, node="n1"))

    assert plan(state, Policy(), 1000.0).empty


def test_without_a_cordon_nothing_is_made() -> None:
    """A job at its max on open nodes is left alone."""
    assert plan(cluster(cordoned=False), Policy(), 1000.0).empty
