"""Whose trainers give way to a pod that preempts, and which proposals stand."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policy.cluster.live_trainers import loss, tier_rank
from policy.names import Role, Tier
from policy.planning.victims import Candidate, choose
from tests.policy.choices import A, B, all_training, chosen
from tests.support.builders import (
    NOW_S,
    cluster_state,
    job,
    node,
    server,
    servers,
    service,
    shape,
    support,
    trainer,
    trainers,
)
from tests.support.strategies import CALM


def test_tiers_give_way_in_order() -> None:
    """Surplus, guaranteed, support; foreign pods last. Trainers without a tier are surplus."""
    first, second = trainers(A, ["n0", "n0"])
    ranks = [second, replace(first, tier=None), first, support(A, "m"), service("s")]

    assert [tier_rank(pod) for pod in ranks] == [0, 0, 1, 2, 3]
    assert tier_rank(replace(first, tier=None, role=Role.MASTER)) == 2


def test_the_least_loss_goes_first() -> None:
    """Surplus before guaranteed, waiting before running, starting before ready, young before old."""
    old = trainer(A, 1, "n0")
    order = [
        trainer(A, 9, ""),
        trainer(A, 8, "n0", ready=False),
        trainer(A, 7, "n0", started_s=NOW_S),
        replace(old, trainer_id=2),
        old,
        trainer(A, 0, "n0", Tier.GUARANTEED),
    ]
    shuffled = [order[i] for i in (3, 0, 5, 2, 4, 1)]

    assert sorted(shuffled, key=loss) == order


def test_surplus_goes_before_guaranteed() -> None:
    """On the node, and between nodes."""
    pods = [
        trainer(A, 0, "n0", Tier.GUARANTEED),
        trainer(A, 1, "n1", Tier.GUARANTEED),
        trainer(A, 2, "n1"),
    ]
    cluster = cluster_state([node("n0", 5), node("n1", 10)], [A], pods)

    assert chosen(service("s", 3), cluster, "n0", "n1") == "n1: a-002"


def test_a_pod_that_asks_for_more_than_resources_gets_the_victims_of_kube_scheduler() -> None:
    """The older trainer has its host port: with the younger one gone it would wait on."""
    old, young = trainers(A, ["n0", "n0"])
    other = trainer(B, 1, "n1", Tier.GUARANTEED)
    cluster = cluster_state([node("n0", 10), node("n1", 5)], [A, B], [old, young, other])
    proposals = [Candidate("n0", (old.uid,)), Candidate("n1", (other.uid,))]
    proxy = replace(service("s", 3), only_resources=False)

    assert choose(proxy, proposals, cluster) == proposals[0]
    assert choose(service("s", 3), proposals, cluster) == Candidate("n0", (young.uid,))


def test_a_master_never_goes_while_trainers_can() -> None:
    """Not even where one master would be enough and two trainers are needed."""
    pods = [support(A, "m", "n0", cpu=5), trainer(A, 1, "n0", requests=shape(2))]
    pods += [trainer(A, 2, "n0", Tier.GUARANTEED, requests=shape(3))]
    cluster = cluster_state([node("n0", 10)], [A], pods)

    assert chosen(service("s", 5), cluster, "n0") == "n0: a-002 a-001"


def test_the_trainer_with_the_master_goes_last_in_its_tier() -> None:
    """On the node, and between nodes: its master would have to move."""
    first = trainer(A, 0, "n0", Tier.GUARANTEED, master=True)
    second = trainer(A, 1, "n0", Tier.GUARANTEED)
    both = cluster_state([node("n0", 10)], [A], [first, second])
    third = replace(second, node="n1")
    apart = cluster_state([node("n0", 5), node("n1", 5)], [A], [first, third])

    assert sorted([first, second], key=loss) == [second, first]
    assert chosen(service("s", 3), both, "n0") == "n0: a-001"
    assert chosen(service("s", 3), apart, "n0", "n1") == "n1: a-001"


def test_the_job_that_holds_most_gives_first() -> None:
    """For its weight, counting what it holds everywhere."""
    pods = [trainer(A, 1, "n0"), trainer(B, 1, "n0"), trainer(B, 2, "n1")]
    nodes = [node("n0", 10), node("n1", 10)]

    assert chosen(service("s"), cluster_state(nodes, [A, B], pods), "n0") == "n0: b-001"
    heavy = replace(B, weight=3)
    assert chosen(service("s"), cluster_state(nodes, [A, heavy], pods), "n0") == "n0: a-001"


def test_queue_weights_count() -> None:
    """A heavier queue keeps its trainers."""
    night = replace(B, queue="night")
    pods = [trainer(A, 1, "n0"), trainer(night, 1, "n0"), trainer(night, 2, "n1")]
    cluster = cluster_state([node("n0", 10), node("n1", 10)], [A, night], pods)

    choice = choose(service("s"), all_training(cluster, "n0"), cluster, weights={"night": 5})

    assert choice == Candidate("n0", ("a-001",), 0)


def test_among_equals_the_least_uncommitted_work_goes() -> None:
    """Uncommitted work reported by the master counts before age, on a node and between nodes."""
    busy = trainer(A, 1, "n0", uncommitted_s=9.0, started_s=NOW_S)
    idle = trainer(A, 2, "n0", uncommitted_s=1.0)
    fresh = [trainer(A, number, "n1") for number in (3, 4)]
    cluster = cluster_state([node("n0", 10), node("n1", 10)], [A], [busy, idle, *fresh])

    assert chosen(service("s"), cluster, "n0") == "n0: a-002"
    assert chosen(service("s"), cluster, "n0", "n1") == "n1: a-003"


def test_among_equals_the_youngest_goes() -> None:
    """It has done least."""
    pods = [trainer(A, 1, "n0"), trainer(A, 2, "n0", started_s=NOW_S), trainer(A, 3, "n0")]

    assert chosen(service("s"), cluster_state([node("n0", 15)], [A], pods), "n0") == "n0: a-002"


def test_pods_of_no_known_job_are_their_own() -> None:
    """Trainers of other operators count by what each of them asks for."""
    small = trainer(job("x", cpu=2), 1, "n0", job="")
    large = trainer(job("y", cpu=5), 1, "n0", job="")
    cluster = cluster_state([node("n0", 7)], [], [small, large])

    assert chosen(service("s", 2), cluster, "n0") == "n0: y-001"


def test_a_victim_that_is_not_needed_is_spared() -> None:
    """Small trainers taken first stay where a large one is needed anyway."""
    pods = [trainer(A, i, "n0", requests=shape(1)) for i in (1, 2)]
    pods += [trainer(B, 1, "n0", requests=shape(8))]
    cluster = cluster_state([node("n0", 10)], [A, B], pods)

    assert chosen(service("s", 8), cluster, "n0") == "n0: b-001"


def test_of_several_that_could_be_spared_the_dearest_is() -> None:
    """Six CPU: the surplus trainer and one guaranteed go, not both guaranteed ones."""
    pods = [
        trainer(A, 2, "n0", requests=shape(2)),
        trainer(A, 0, "n0", Tier.GUARANTEED, requests=shape(3), started_s=NOW_S),
        trainer(A, 1, "n0", Tier.GUARANTEED, requests=shape(5)),
    ]

    assert (
        chosen(service("s", 6), cluster_state([node("n0", 10)], [A], pods), "n0")
        == "n0: a-001 a-002"
    )


@CALM
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(0, 6), st.integers(1, 20))
def test_no_victim_could_be_exchanged_for_cheaper_ones(
    sizes: list[int], surplus: int, cpu: int
) -> None:
    """Of all sets that make room the one goes whose dearest trainer, then its next, costs least."""
    assume(cpu <= sum(sizes))
    tiers = [Tier.SURPLUS if i < surplus else Tier.GUARANTEED for i in range(len(sizes))]
    pods = [
        trainer(A, i, "n0", tier, requests=shape(size), uncommitted_s=float(i))
        for i, (size, tier) in enumerate(zip(sizes, tiers, strict=True))
    ]  # the cheapest first, so that a set's bits as a number say how dear it is
    cluster = cluster_state([node("n0", sum(sizes))], [A], pods)

    cheapest = min(
        bits
        for bits in range(1, 1 << len(sizes))
        if sum(size for i, size in enumerate(sizes) if bits >> i & 1) >= cpu
    )

    uids = sorted(pod.uid for i, pod in enumerate(pods) if cheapest >> i & 1)
    assert sorted(chosen(service("s", cpu), cluster, "n0").split()) == [*uids, "n0:"]


def test_a_node_of_no_help_keeps_its_proposal() -> None:
    """Where training cannot free enough, kube-scheduler's victims stand, and come last."""
    pods = [service("low", 8, "n0", priority=-1), trainer(A, 1, "n0", requests=shape(1))]
    cluster = cluster_state([node("n0", 9), node("n1", 18)], [A], [*pods, *trainers(B, ["n1"] * 3)])
    stands = Candidate("n0", ("uid-low",), 1)

    assert choose(service("s", 8), [stands], cluster) == stands
    assert choose(service("s", 8), [stands, *all_training(cluster, "n1")], cluster) == Candidate(
        "n1", ("b-001",), 0
    )


@pytest.mark.parametrize(
    "candidate", [Candidate("gone", ("x",)), Candidate("n0", ("never-seen",), 2)]
)
def test_what_the_index_does_not_know_is_kept_as_it_came(candidate: Candidate) -> None:
    """A node or a victim that the watch has not shown yet: taken only where nothing is better."""
    cluster = cluster_state(
        [node("n0", 5), node("n1", 5)], [A], [trainer(A, 0, "n1", Tier.GUARANTEED)]
    )

    assert choose(service("s"), [candidate], cluster) == candidate
    better = choose(service("s"), [candidate, *all_training(cluster, "n1")], cluster)
    assert better is not None
    assert better.node == "n1"


def test_candidates_that_training_cannot_help_go_by_their_names() -> None:
    """A trainer whose release is not enough, an unknown node: the proposal stays as it is."""
    cluster = cluster_state([node("n0", 9)], [A], [trainer(A, 1, "n0")])
    known_node, unknown = Candidate("n0", ("a-001",)), Candidate("n1", ("x",))

    assert choose(service("s", 18), [unknown, known_node], cluster) == known_node


def test_no_victims_no_choice() -> None:
    """Candidates without victims are none."""
    assert choose(service("s"), [Candidate("n0", ())], cluster_state([node("n0")])) is None
    assert choose(service("s"), [], cluster_state()) is None


@pytest.mark.parametrize(
    ("proposed", "violations", "counted"),
    [(("a-001", "a-000"), 2, 1), (("a-001",), 0, 0), (("a-000",), 1, 0)],
)
def test_budget_violations_are_counted_for_our_choice(
    proposed: tuple[str, ...], violations: int, counted: int
) -> None:
    """Never more than the victims; surplus is outside of every budget of ours."""
    pods = [trainer(A, 0, "n0", Tier.GUARANTEED), trainer(A, 1, "n0")]
    cluster = cluster_state([node("n0", 10)], [A], pods)

    choice = choose(service("s"), [Candidate("n0", proposed, violations)], cluster)

    assert choice == Candidate("n0", ("a-001",), counted)


@pytest.mark.parametrize(("violations", "taken"), [(0, "a-000"), (1, "b-000")])
def test_a_budget_that_kube_scheduler_keeps_is_kept(violations: int, taken: str) -> None:
    """The richer job gives a guaranteed trainer only where that violates no more budgets."""
    pods = [trainer(A, 0, "n0", Tier.GUARANTEED), trainer(B, 0, "n0", Tier.GUARANTEED)]
    cluster = cluster_state([node("n0", 10)], [A, B], [*pods, trainer(B, 1, "n1")])
    proposal = Candidate("n0", ("a-000",), violations)

    assert choose(service("s", 3), [proposal], cluster) == replace(proposal, uids=(taken,))


def test_guaranteed_trainers_of_one_job_share_a_budget() -> None:
    """Which of them goes makes no difference to it."""
    pods = [trainer(A, i, "n0", Tier.GUARANTEED, uncommitted_s=9.0 - i) for i in (0, 1)]
    cluster = cluster_state([node("n0", 10)], [A], pods)

    choice = choose(service("s", 3), [Candidate("n0", ("a-000",), 0)], cluster)

    assert choice == Candidate("n0", ("a-001",), 0)


def test_servers_make_a_job_richer() -> None:
    """Of two jobs with a trainer each on the node, the one that holds servers gives."""
    served = job("zserved", 1, 9, servers=servers(2, 2))
    plain = job("a", 1, 9)
    pods = [
        trainer(plain, 0, "n0"),
        trainer(served, 0, "n0"),
        server(served, 0, "n1"),
        server(served, 1, "n1"),
    ]
    cluster = cluster_state([node("n0", 10), node("n1", 10)], [served, plain], pods)

    assert chosen(service("s", 5), cluster, "n0") == "n0: zserved-000"
