"""Trainers whose kubelet had no room for them: what that says about their nodes."""

from typing import Any

import pytest

from policy.cluster.snapshot import Phase, Pod
from policy.planning.node_failures import AvoidedNodes, Blame
from tests.support.builders import NOW_S, cluster_state, job, node, trainer

_JOB = job("a", 1, 20)
_NODES = [node("n0"), node("n1")]


def _failed(number: int, where: str, ago_s: float, created_ago_s: float, **fields: bool) -> Pod:
    """A trainer that failed at its start."""
    values: dict[str, Any] = {"phase": Phase.FAILED, "ready": False, "ran_s": 0.0} | fields
    created_s, ended_s = NOW_S - created_ago_s, NOW_S - ago_s
    return trainer(_JOB, number, where, created_s=created_s, ended_s=ended_s, **values)


def _avoided(pods: list[Pod]) -> dict[str, float]:
    return AvoidedNodes(cluster_state(_NODES, (_JOB,), pods), (), NOW_S).of(_JOB)


def _crowded_out(number: int, where: str, ago_s: float, created_ago_s: float) -> Pod:
    """A trainer whose kubelet had no room for it."""
    return _failed(number, where, ago_s, created_ago_s, rejected=True, lacked_room=True)


@pytest.mark.parametrize(
    ("refusals", "for_s"),
    [
        (((50, 52),), 0),
        (((50, 52), (50, 51), (49, 50)), 0),
        (((700, 702), (50, 52)), 0),
        (((50, 52), (40, 42)), 600),
        (((50, 52), (40, 42), (30, 32)), 1200),
    ],
)
def test_room_given_away_twice_is_no_fault_of_a_node(
    refusals: tuple[tuple[float, float], ...], for_s: float
) -> None:
    """The job comes back at once; a node that lacks room again, soon and for a new trainer, is avoided."""
    pods = [_crowded_out(i, "n0", ago, created) for i, (ago, created) in enumerate(refusals)]

    assert _avoided(pods) == ({"n0": NOW_S - refusals[-1][0] + for_s} if for_s else {})


def test_room_given_away_twice_is_no_fault_of_a_job() -> None:
    """On however many nodes: what fails elsewhere is still the node's fault."""
    crowded = [_crowded_out(i, f"m{i}", 50, 52) for i in range(4)]
    failed = _failed(10, "n0", 50, 52)
    blame = Blame([*crowded, failed, trainer(_JOB, 11, "n1")])

    assert all(blame.repeats(pod) for pod in crowded)
    assert not blame.repeats(failed)
    assert blame.is_of_node(failed)
