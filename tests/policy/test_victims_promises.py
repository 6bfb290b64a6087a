"""Victims where several pods come: services in a row, promises, nominations and leavers."""

import pytest

from policy.cluster.snapshot import Job, Pod
from policy.names import Tier
from policy.planning.victims import Candidate, Promise, choose
from tests.policy.choices import A, B, chosen
from tests.support.builders import NOW_S, cluster_state, job, node, service, shape, support, trainer


def test_one_trainer_makes_room_for_two_services() -> None:
    """5 CPU beside 1 free are 6: two services of 3 come cheaper than on a node with none free."""
    pods = [trainer(A, 1, "n0"), trainer(A, 2, "n1")]
    nodes = [node("n0", 5), node("n1", 6)]
    waiting = [service("s0"), service("s1")]

    assert (
        chosen(waiting[0], cluster_state(nodes, [A], [*pods, *waiting]), "n0", "n1") == "n1: a-002"
    )


def test_what_goes_next_counts_as_it_is() -> None:
    """Beside it there is a trainer of 7 CPU: two then make room for three services, not for two."""
    small, large = job("small", cpu=4), job("large", cpu=8)
    pods = [
        trainer(small, 1, "n1", started_s=NOW_S),
        trainer(large, 1, "n1", started_s=NOW_S - 900),
        trainer(small, 2, "n0", started_s=NOW_S - 1),
        trainer(small, 3, "n0", started_s=NOW_S - 900),
    ]
    nodes = [node("n0", 8), node("n1", 12)]
    waiting = [service(f"s{i}", 4) for i in range(3)]

    cluster = cluster_state(nodes, [small, large], [*pods, *waiting])

    assert chosen(waiting[0], cluster, "n0", "n1") == "n1: small-001"


def test_the_preemptor_counts_once() -> None:
    """A lone service takes one victim, not two where a second service would have fitted."""
    big, small = job("big", cpu=3), job("small", cpu=5)
    pods = [trainer(big, 1, "n0"), trainer(big, 2, "n0"), trainer(small, 1, "n1")]
    pods += [service("full", 3, "n2")]
    nodes = [node("n0", 6), node("n1", 5), node("n2", 30)]
    lone = service("s", 5)

    cluster = cluster_state(nodes, [big, small], [*pods, lone])

    assert chosen(lone, cluster, "n0", "n1") == "n1: small-001"


def test_leavers_cost_nothing() -> None:
    """Where room is coming, nobody new is taken; the leavers are named as the victims."""
    pods = [trainer(A, 1, "n0"), trainer(A, 2, "n1", deleting=True), trainer(A, 3, "n1")]
    cluster = cluster_state([node("n0", 5), node("n1", 10)], [A], pods)

    assert chosen(service("s"), cluster, "n0", "n1") == "n1: a-002"


def test_room_given_away_is_not_given_twice() -> None:
    """Promises of the same rank count, once and for others only; their victims count as gone."""
    pods = [trainer(A, i, "n0") for i in (1, 2, 3)]
    nodes = [node("n0", 15)]
    cluster = cluster_state(nodes, [A], pods)
    promise = Promise("uid-other", "n0", shape(3), 0, frozenset({"a-001"}))

    assert chosen(service("s", 2), cluster, "n0", promises=(promise,)) == "n0: a-001"
    assert chosen(service("s", 3), cluster, "n0", promises=(promise,)) == "n0: a-002"
    nominated = service("other", 3, nominated="n0")
    cluster.put_pod(nominated)
    assert chosen(service("s", 3), cluster, "n0", promises=(promise,)) == "n0: a-002"
    assert chosen(nominated, cluster, "n0", promises=(promise,)) == "n0: a-001"


@pytest.mark.parametrize("priority", [0, 1])
def test_room_of_a_nominated_pod_is_its_own(priority: int) -> None:
    """Two of one rank or above would take the same room, and the second would preempt again."""
    pods = [trainer(A, i, "n0") for i in (1, 2, 3)]
    before = service("before", 3, nominated="n0", priority=priority)
    alone = cluster_state([node("n0", 15)], [A], pods)
    beside = cluster_state([node("n0", 15)], [A], [*pods, before])

    assert chosen(service("s", 3), alone, "n0") == "n0: a-001"
    assert chosen(service("s", 3), beside, "n0") == "n0: a-001 a-002"


def _asking(tier: Tier, name: str, owner: Job, where: str = "") -> Pod:
    """A pod of 5 CPU of that tier."""
    if tier is Tier.SUPPORT:
        return support(owner, name, where, cpu=5)
    return trainer(owner, 0, where, tier)


@pytest.mark.parametrize("tier", [Tier.GUARANTEED, Tier.SUPPORT])
def test_a_job_never_takes_what_ranks_as_its_own(tier: Tier) -> None:
    """Where the lower pods' room is promised already, another job's minimum and servers stay."""
    surplus, equal = trainer(B, 1, "n0"), _asking(tier, "held", B, "n0")
    cluster = cluster_state([node("n0", 10)], [A, B], [surplus, equal])
    promise = Promise("uid-other", "n0", shape(5), 0, frozenset({surplus.uid}))
    proposed = Candidate("n0", (surplus.uid,))

    assert choose(_asking(tier, "new", A), [proposed], cluster, (promise,)) == proposed


def test_a_node_where_only_equals_could_make_room_comes_last() -> None:
    """Two trainers elsewhere go rather than one whose room is promised already."""
    small = job("small", cpu=3)
    promised, equal = trainer(B, 1, "n0"), trainer(B, 0, "n0", Tier.GUARANTEED)
    pods = [promised, equal, trainer(small, 1, "n1"), trainer(small, 2, "n1")]
    cluster = cluster_state([node("n0", 10), node("n1", 6)], [A, B, small], pods)
    promise = Promise("uid-other", "n0", shape(5), 0, frozenset({promised.uid}))
    proposals = [Candidate("n0", (promised.uid,)), Candidate("n1", ("small-001", "small-002"))]

    choice = choose(trainer(A, 0, "", Tier.GUARANTEED), proposals, cluster, (promise,))

    assert choice is not None
    assert choice.node == "n1"


def test_lower_nominations_do_not_bind() -> None:
    """A pod that ranks below the preemptor gets no room before it."""
    pods = [trainer(A, 1, "n0"), service("low", 3, nominated="n0", priority=-5)]
    cluster = cluster_state([node("n0", 5)], [A], pods)
    promise = Promise("uid-x", "n0", shape(3), -5, frozenset())

    assert chosen(service("s", 3), cluster, "n0", promises=(promise,)) == "n0: a-001"
