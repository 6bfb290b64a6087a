"""Which candidates kube-scheduler gets back where services would end, and which it then takes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster.cluster_state import ClusterState
from policy.cluster.horizon import Horizon
from policy.cluster.snapshot import Pod
from policy.names import Tier
from policy.planning.victims import Candidate, Promise, choose, expected, narrow
from tests.policy.choices import A, B
from tests.support.builders import NOW_S, cluster_state, node, service, shape, trainer
from tests.support.strategies import CALM

_HORIZON = Horizon.of(NOW_S, 10)
_SOON_S, _SLOW_S, _OVERDUE_S = NOW_S + 9, NOW_S + 300, NOW_S - 60


def _low(name: str, where: str, priority: int = -1, **fields: Any) -> Pod:
    return service(name, 5, where, priority=priority, **fields)


def _two_nodes(*pods: Pod) -> ClusterState:
    return cluster_state([node("n0", 10), node("n1", 10)], [A, B], pods)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Candidate("n0", ("uid-a",), 1), Candidate("n1", ("uid-b", "uid-c"))),
        (Candidate("n0", ("uid-a",)), Candidate("n1", ("uid-b",))),
    ],
)
def test_preemptions_among_services_are_kube_schedulers(
    first: Candidate, second: Candidate
) -> None:
    """All candidates come back, so that budgets and priorities decide, and not names."""
    pods = [_low("a", "n0", 900), _low("b", "n1", -5), _low("c", "n1", -5)]
    cluster = _two_nodes(*pods)
    preemptor = service("s", 5, priority=1000)

    assert narrow(preemptor, [first, second], cluster) == (first, second)
    assert choose(preemptor, [first, second], cluster) == second


@CALM
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(-9, 9), min_size=1, max_size=4),
            st.integers(0, 2),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_candidates_of_services_come_back_as_they_came(
    nodes: list[tuple[list[int], int, bool]],
) -> None:
    """All, in any number, with their budget violations; beside trainers on the nodes, too."""
    pods: list[Pod] = []
    candidates = []
    for number, (priorities, violations, with_trainer) in enumerate(nodes):
        name = f"n{number}"
        victims = [_low(f"{name}-{i}", name, priority) for i, priority in enumerate(priorities)]
        pods += [*victims, *([trainer(A, number, name)] if with_trainer else [])]
        candidates.append(Candidate(name, tuple(pod.uid for pod in victims), violations))
    cluster = cluster_state([node(c.node, 40) for c in candidates], [A], pods)

    assert narrow(service("s", 5, priority=10), candidates, cluster) == tuple(candidates)


def test_a_candidate_with_services_and_trainers_stands() -> None:
    """Which services end is kube-scheduler's decision, and so is what ends with them."""
    pods = [_low("low", "n0"), trainer(A, 0, "n0"), trainer(A, 1, "n0", Tier.GUARANTEED)]
    cluster = cluster_state([node("n0", 15)], [A], pods)
    proposal = Candidate("n0", ("uid-low", "a-000"))

    assert narrow(service("s", 9), [proposal], cluster) == (proposal,)


def test_among_trainers_alone_one_candidate_remains() -> None:
    """Beside those with services, of which all remain; kube-scheduler takes the trainer."""
    pods = [_low("low", "n0"), trainer(A, 0, "n1"), trainer(B, 0, "n2"), trainer(B, 1, "n2")]
    cluster = cluster_state([node(f"n{i}", 10) for i in range(3)], [A, B], pods)
    of_services = Candidate("n0", ("uid-low",))
    of_trainers = [Candidate("n1", ("a-000",)), Candidate("n2", ("b-000",))]
    remaining = narrow(service("s", 5), [of_trainers[0], of_services, of_trainers[1]], cluster)

    assert remaining == (of_services, of_trainers[1])
    assert expected(remaining, cluster) == of_trainers[1]


def test_budgets_of_trainers_count_as_those_of_services() -> None:
    """The fewest violations come before the lowest priority, as in kube-scheduler."""
    pods = [_low("low", "n0", 0), trainer(A, 0, "n1", Tier.GUARANTEED)]
    cluster = _two_nodes(*pods)
    of_services = Candidate("n0", ("uid-low",))
    of_trainers = Candidate("n1", ("a-000",), 1)

    assert choose(service("s", 6, priority=1), [of_trainers, of_services], cluster) == of_services


@CALM
@given(st.lists(st.tuples(st.sampled_from(Tier), st.integers(0, 1)), min_size=2, max_size=6))
def test_no_narrowing_costs_more_budgets_or_a_higher_pod(tiers: list[tuple[Tier, int]]) -> None:
    """What remains is at least as good, by kube-scheduler's first two criteria, as any proposal."""
    pods = [trainer(A, i, f"n{i}", tier) for i, (tier, _) in enumerate(tiers)]
    pods += [trainer(B, i, pod.node, Tier.GUARANTEED) for i, pod in enumerate(pods)]
    nodes = [node(f"n{i}", 10) for i in range(len(tiers))]
    cluster = cluster_state(nodes, [A, B], pods)
    proposals = [
        Candidate(pods[i].node, (pods[i].uid,), violations)
        for i, (_, violations) in enumerate(tiers)
    ]

    choice = choose(service("s", 5), proposals, cluster)

    assert choice is not None
    assert (choice.violations, cluster.pods[choice.uids[0]].priority) <= min(
        (proposal.violations, cluster.pods[proposal.uids[0]].priority) for proposal in proposals
    )


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        ([("a", -9, 5.0)], [("b", -9, 5.0), ("c", -9, 5.0)]),
        ([("a", -8, 5.0)], [("b", -9, 5.0), ("c", -9, 5.0)]),
        ([("a", -9, 5.0), ("b", -9, 5.0)], [("c", -9, 5.0)]),
        ([("a", -9, 5.0)], [("b", -9, 6.0)]),
        ([("a", -9, 5.0)], [("b", -9, 0.0)]),
        ([("a", -9, 7.0), ("b", -9, 5.0)], [("c", -9, 6.0), ("d", -9, 6.0)]),
    ],
)
def test_kube_schedulers_order(
    worse: list[tuple[str, int, float]], better: list[tuple[str, int, float]]
) -> None:
    """Violations, highest priority, sum, number, and then the latest start of the highest."""
    violations = int(worse[0][1:] == better[0][1:] and len(worse) < len(better))
    lists = [
        [_low(name, where, priority, started_s=start) for name, priority, start in victims]
        for where, victims in (("n0", worse), ("n1", better))
    ]
    cluster = _two_nodes(*lists[0], *lists[1])
    first, second = (
        Candidate(pods[0].node, tuple(pod.uid for pod in pods), count)
        for pods, count in zip(lists, (violations, 0), strict=True)
    )

    assert expected([first, second], cluster) == second
    assert expected([second, first], cluster) == second
    assert expected([Candidate("n7", ("who",)), first], cluster) == first


@pytest.mark.parametrize("due_s", [_SLOW_S, _OVERDUE_S])
def test_nobody_waits_for_a_slow_drain(due_s: float) -> None:
    """A broker that takes minutes, or hangs: trainers give way, and it is never a victim."""
    broker = service("kafka-0", 5, "n0", deleting=True, leaves_by_s=due_s)
    cluster = _two_nodes(broker, trainer(A, 0, "n0"), trainer(B, 0, "n1"), trainer(B, 1, "n1"))
    proposals = [Candidate("n0", ("a-000",)), Candidate("n1", ("b-000",))]
    preemptor = service("s", 5)

    assert narrow(preemptor, proposals[:1], cluster, horizon=_HORIZON) == (proposals[0],)
    assert narrow(preemptor, proposals, cluster, horizon=_HORIZON) == (proposals[1],)


def test_a_leaving_service_is_never_named() -> None:
    """Not even where its room is enough and comes soon: kube-scheduler named a trainer there."""
    old = service("old", 5, "n0", deleting=True, leaves_by_s=_SOON_S)
    cluster = _two_nodes(old, trainer(A, 0, "n0"))
    proposal = Candidate("n0", ("a-000",))

    assert narrow(service("s", 5), [proposal], cluster, horizon=_HORIZON) == (proposal,)


def test_a_leaving_service_counts_beside_what_may_be_named() -> None:
    """A trainer that leaves is the victim to wait for, and nobody else ends."""
    old = service("old", 5, "n0", deleting=True, leaves_by_s=_SOON_S)
    gone = trainer(A, 1, "n0", requests=shape(1), deleting=True, leaves_by_s=_SOON_S)
    cluster = cluster_state([node("n0", 11)], [A], [old, gone, trainer(A, 0, "n0")])
    proposal = Candidate("n0", ("a-000", "a-001"))

    assert narrow(service("s", 6), [proposal], cluster, horizon=_HORIZON) == (
        Candidate("n0", ("a-001",)),
    )
    late = replace(gone, leaves_by_s=_SLOW_S)
    cluster.put_pod(late)
    assert narrow(service("s", 5), [proposal], cluster, horizon=_HORIZON) == (
        Candidate("n0", ("a-000",)),
    )


def test_what_is_promised_counts_as_leaving_before_it_is_deleted() -> None:
    """The watch has not shown yet what kube-scheduler was answered."""
    cluster = _two_nodes(trainer(A, 0, "n0"), trainer(A, 1, "n0"))
    promise = Promise("uid-x", "n0", shape(0), 0, frozenset({"a-000"}))

    assert narrow(
        service("s", 5), [Candidate("n0", ("a-001",))], cluster, [promise], horizon=_HORIZON
    ) == (Candidate("n0", ("a-000",)),)
