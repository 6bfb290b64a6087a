"""The trainer of rank 0 is released last among equals: it has 10 s of uncommitted work."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy, Reserve
from policy.document.queue_model import Quota
from policy.names import Tier
from policy.planning.plan import Plan
from policy.planning.planner import plan
from policy.planning.victims import Candidate, choose
from tests.support.builders import (
    NOW_S,
    cluster_state,
    job,
    node,
    server,
    servers,
    service,
    trainer,
)

_FREE = Policy(reserve=Reserve(max_load={}))
_LEADER_COST_S = 10.0
_A = job("a", 1, 9)


def _surplus(owner: Job, *places: str, leader: int) -> list[Pod]:
    """Surplus trainers that differ in nothing but that one of them leads."""
    pods = [trainer(owner, number, where) for number, where in enumerate(places, start=1)]
    pods[leader] = replace(pods[leader], uncommitted_s=_LEADER_COST_S)
    return pods


def _released(
    nodes: list[Node], jobs: list[Job], pods: list[Pod], policy: Policy = _FREE
) -> list[str]:
    new_plan: Plan = plan(cluster_state(nodes, jobs, pods), policy, NOW_S)
    return [release.pod for release in new_plan.releases]


@pytest.mark.parametrize("leader", range(3))
def test_services_of_a_burst_take_the_others(leader: int) -> None:
    """The plan lets two of three surplus trainers of a node go, and never the leader."""
    job_pods = [
        trainer(_A, 0, "n1", Tier.GUARANTEED),
        *_surplus(_A, "n0", "n0", "n0", leader=leader),
    ]
    burst = [service("s0", 5), service("s1", 5)]
    released = _released([node("n0", 15), node("n1", 5)], [_A], [*job_pods, *burst])

    assert len(released) == 2
    assert f"a-trainer-{leader + 1}" not in released


@pytest.mark.parametrize("leader", range(3))
def test_services_of_a_burst_take_other_nodes(leader: int) -> None:
    """Where each is alone on its node, too."""
    places = ("n0", "n1", "n2")
    job_pods = [trainer(_A, 0, "n3", Tier.GUARANTEED), *_surplus(_A, *places, leader=leader)]
    nodes = [node(name, 5) for name in (*places, "n3")]
    released = _released(nodes, [_A], [*job_pods, service("s0", 5), service("s1", 5)])

    assert len(released) == 2
    assert f"a-trainer-{leader + 1}" not in released


def _lower_max(job_pods: list[Pod]) -> list[str]:
    return _released([node("n0", 40)], [replace(_A, max_trainers=2)], job_pods)


def _lower_quota(job_pods: list[Pod]) -> list[str]:
    policy = _FREE.model_copy(update={"quotas": (Quota(namespace="ml", requests={"cpu": "10"}),)})
    return _released([node("n0", 40)], [_A], job_pods, policy)


def _higher_reserve(job_pods: list[Pod]) -> list[str]:
    policy = Policy.model_validate({"reserve": {"maxLoad": {"cpu": 0.5}}, "stability": _ANY})
    return _released([node("n0", 20)], [_A], job_pods, policy)


def _poorer_job(job_pods: list[Pod]) -> list[str]:
    poor = job("poor", 1, 9)
    pods = [*job_pods, trainer(poor, 0, "n0", Tier.GUARANTEED)]
    policy = _FREE.model_copy(
        update={"stability": Policy.model_validate({"stability": _ANY}).stability}
    )
    return _released([node("n0", 25)], [_A, poor], pods, policy)


_ANY = {"maxMoves": 1.0, "minRunSeconds": 0}


@pytest.mark.parametrize("leader", range(3))
@pytest.mark.parametrize("cause", [_lower_max, _lower_quota, _higher_reserve, _poorer_job])
def test_whatever_the_plan_takes_for_it_takes_others(
    cause: Callable[[list[Pod]], list[str]], leader: int
) -> None:
    """Maximum, quota, reserve and fairness: the leader stays while another can go."""
    places = ("n0",) * 3
    released = cause([trainer(_A, 0, "n0", Tier.GUARANTEED), *_surplus(_A, *places, leader=leader)])

    assert released
    assert f"a-trainer-{leader + 1}" not in released


@pytest.mark.parametrize("leader", range(3))
def test_preemption_takes_the_others_of_a_node(leader: int) -> None:
    """The extender's answer to kube-scheduler, whatever that one proposed."""
    job_pods = _surplus(_A, "n0", "n0", "n0", leader=leader)
    cluster = cluster_state([node("n0", 15)], [_A], [*job_pods, service("s", 10)])
    choice = choose(
        service("s", 10), [Candidate("n0", tuple(pod.uid for pod in job_pods))], cluster
    )

    assert choice is not None
    assert set(choice.uids) == {pod.uid for pod in job_pods} - {job_pods[leader].uid}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_preemption_takes_the_others_of_several_nodes(order: tuple[int, ...]) -> None:
    """The node of the leader is the last one chosen, whatever its name."""
    places = ("n0", "n1", "n2")
    job_pods = _surplus(_A, *places, leader=order[0])
    cluster = cluster_state([node(name, 5) for name in places], [_A], [*job_pods, service("s", 5)])
    candidates = [Candidate(places[i], (job_pods[i].uid,)) for i in order]
    choice = choose(service("s", 5), candidates, cluster)

    assert choice is not None
    assert choice.uids != (job_pods[order[0]].uid,)


def test_preemption_takes_guaranteed_others_too() -> None:
    """A tier is a tier: within the guaranteed one the leader is the last again."""
    job_pods = [
        replace(pod, tier=Tier.GUARANTEED, priority=-8)
        for pod in _surplus(_A, "n0", "n0", leader=0)
    ]
    cluster = cluster_state([node("n0", 10)], [_A], [*job_pods, service("s", 5)])
    choice = choose(service("s", 5), [Candidate("n0", (job_pods[0].uid,))], cluster)

    assert choice is not None
    assert choice.uids == (job_pods[1].uid,)


def test_a_server_never_goes_before_trainers() -> None:
    """Not even before the leader that carries the master."""
    served = replace(_A, servers=servers(1, 5))
    leader = trainer(served, 0, "n0", Tier.GUARANTEED, uncommitted_s=_LEADER_COST_S, master=True)
    serving = server(served, 0, "n0")
    cluster = cluster_state([node("n0", 10)], [served], [leader, serving, service("s", 5)])
    choice = choose(service("s", 5), [Candidate("n0", (leader.uid, serving.uid))], cluster)

    assert choice is not None
    assert choice.uids == (leader.uid,)
