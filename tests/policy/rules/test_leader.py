"""The trainer of rank 0 is the dearest among equals: its master says 10 uncommitted seconds of it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

from policy.elasticity import plan
from policy.model import Policy, Quota, Reserve
from policy.names import Tier
from policy.planning import Plan
from policy.snapshot import Job, Node, Pod
from policy.victims import Candidate, choose
from tests.support.builders import NOW_S, index, job, node, server, servers, service, trainer

_FREE = Policy(reserve=Reserve(max_load={}))
_LEADER_COST_S = 10.0
_A = job("a", 1, 9)


def _surplus(owner: Job, *places: str, leader: int) -> list[Pod]:
    """Surplus trainers that differ in nothing but that one of them leads."""
    found = [trainer(owner, number, where) for number, where in enumerate(places, start=1)]
    found[leader] = replace(found[leader], uncommitted_s=_LEADER_COST_S)
    return found


def _let_go(
    nodes: list[Node], jobs: list[Job], pods: list[Pod], policy: Policy = _FREE
) -> list[str]:
    made: Plan = plan(index(nodes, jobs, pods), policy, NOW_S)
    return [release.pod for release in made.releases]


@pytest.mark.parametrize("leader", range(3))
def test_services_of_a_burst_take_the_others(leader: int) -> None:
    """The plan lets two of three surplus trainers of a node go, and never the leader."""
    crew = [trainer(_A, 0, "n1", Tier.GUARANTEED), *_surplus(_A, "n0", "n0", "n0", leader=leader)]
    burst = [service("s0", 5), service("s1", 5)]
    gone = _let_go([node("n0", 15), node("n1", 5)], [_A], [*crew, *burst])

    assert len(gone) == 2
    assert f"a-trainer-{leader + 1}" not in gone


@pytest.mark.parametrize("leader", range(3))
def test_services_of_a_burst_take_other_nodes(leader: int) -> None:
    """Where each is alone on its node, too."""
    places = ("n0", "n1", "n2")
    crew = [trainer(_A, 0, "n3", Tier.GUARANTEED), *_surplus(_A, *places, leader=leader)]
    nodes = [node(name, 5) for name in (*places, "n3")]
    gone = _let_go(nodes, [_A], [*crew, service("s0", 5), service("s1", 5)])

    assert len(gone) == 2
    assert f"a-trainer-{leader + 1}" not in gone


def _lower_max(crew: list[Pod]) -> list[str]:
    return _let_go([node("n0", 40)], [replace(_A, max_trainers=2)], crew)


def _lower_quota(crew: list[Pod]) -> list[str]:
    policy = _FREE.model_copy(update={"quotas": (Quota(namespace="ml", requests={"cpu": "10"}),)})
    return _let_go([node("n0", 40)], [_A], crew, policy)


def _higher_reserve(crew: list[Pod]) -> list[str]:
    policy = Policy.model_validate({"reserve": {"maxLoad": {"cpu": 0.5}}, "stability": _ANY})
    return _let_go([node("n0", 20)], [_A], crew, policy)


def _poorer_job(crew: list[Pod]) -> list[str]:
    poor = job("poor", 1, 9)
    pods = [*crew, trainer(poor, 0, "n0", Tier.GUARANTEED)]
    policy = _FREE.model_copy(
        update={"stability": Policy.model_validate({"stability": _ANY}).stability}
    )
    return _let_go([node("n0", 25)], [_A, poor], pods, policy)


_ANY = {"maxMoves": 1.0, "minRunSeconds": 0}


@pytest.mark.parametrize("leader", range(3))
@pytest.mark.parametrize("cause", [_lower_max, _lower_quota, _higher_reserve, _poorer_job])
def test_whatever_the_plan_takes_for_it_takes_others(
    cause: Callable[[list[Pod]], list[str]], leader: int
) -> None:
    """Maximum, quota, reserve and fairness: the leader stays while another can go."""
    places = ("n0",) * 3
    gone = cause([trainer(_A, 0, "n0", Tier.GUARANTEED), *_surplus(_A, *places, leader=leader)])

    assert gone
    assert f"a-trainer-{leader + 1}" not in gone


@pytest.mark.parametrize("leader", range(3))
def test_preemption_takes_the_others_of_a_node(leader: int) -> None:
    """The extender's answer to kube-scheduler, whatever that one proposed."""
    crew = _surplus(_A, "n0", "n0", "n0", leader=leader)
    found = index([node("n0", 15)], [_A], [*crew, service("s", 10)])
    choice = choose(service("s", 10), [Candidate("n0", tuple(pod.uid for pod in crew))], found)

    assert choice is not None
    assert set(choice.uids) == {pod.uid for pod in crew} - {crew[leader].uid}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_preemption_takes_the_others_of_several_nodes(order: tuple[int, ...]) -> None:
    """The node of the leader is the last one chosen, whatever its name."""
    places = ("n0", "n1", "n2")
    crew = _surplus(_A, *places, leader=order[0])
    found = index([node(name, 5) for name in places], [_A], [*crew, service("s", 5)])
    candidates = [Candidate(places[i], (crew[i].uid,)) for i in order]
    choice = choose(service("s", 5), candidates, found)

    assert choice is not None
    assert choice.uids != (crew[order[0]].uid,)


def test_preemption_takes_guaranteed_others_too() -> None:
    """A tier is a tier: within the guaranteed one the leader is the last again."""
    crew = [
        replace(pod, tier=Tier.GUARANTEED, priority=-8)
        for pod in _surplus(_A, "n0", "n0", leader=0)
    ]
    found = index([node("n0", 10)], [_A], [*crew, service("s", 5)])
    choice = choose(service("s", 5), [Candidate("n0", (crew[0].uid,))], found)

    assert choice is not None
    assert choice.uids == (crew[1].uid,)


def test_a_server_never_goes_before_trainers() -> None:
    """Not even before the leader that carries the master."""
    served = replace(_A, servers=servers(1, 5))
    leader = trainer(served, 0, "n0", Tier.GUARANTEED, uncommitted_s=_LEADER_COST_S, master=True)
    serving = server(served, 0, "n0")
    found = index([node("n0", 10)], [served], [leader, serving, service("s", 5)])
    choice = choose(service("s", 5), [Candidate("n0", (leader.uid, serving.uid))], found)

    assert choice is not None
    assert choice.uids == (leader.uid,)
