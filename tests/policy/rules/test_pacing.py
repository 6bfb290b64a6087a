"""Trainers under way go round namespaces; nobody's share is taken meanwhile."""

from dataclasses import replace

import pytest

from policy.cluster.snapshot import Constraints, Job, Node, Pod, Requirement
from policy.document.model import Policy, Reserve, Sizes
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, shape, trainer, trainers

_FREE = Policy(reserve=Reserve(max_load={}))
_TINY = job("tiny", 1, 10_000, cpu=0.1, namespace="other")
_LARGE = job("large", 1, 50, cpu=5)
_NODES = [node(f"n{i}", 50, pods=1000) for i in range(10)]
_HISTORY = History(placeable=20)


def _plan(jobs: list[Job], nodes: list[Node] = _NODES, pods: tuple[Pod, ...] = ()) -> Plan:
    present = [pod for owner in jobs for pod in trainers(owner, ["n0"])]
    return plan(cluster_state(nodes, jobs, [*present, *pods]), _FREE, NOW_S, _HISTORY)


def _created(new_plan: Plan) -> dict[str, int]:
    return {create.job: create.count for create in new_plan.creates}


def _waiting(owner: Job, count: int) -> tuple[Pod, ...]:
    return tuple(trainer(owner, 10 + i, created_s=NOW_S) for i in range(count))


def _several(owner: Job, count: int) -> list[Job]:
    return [replace(owner, name=f"{owner.name}{i}", uid=f"{owner.name}{i}") for i in range(count)]


def test_namespaces_share_what_kube_scheduler_places() -> None:
    """Ten thousand tiny trainers, whose share is always the least, do not take every slot."""
    new_plan = _plan([_TINY, _LARGE])

    assert _created(new_plan) == {"other/tiny": 10, "ml/large": 10}
    assert {job_plan.reason for job_plan in new_plan.jobs} == {Reason.GROWING}


def test_the_least_share_goes_first_within_a_namespace() -> None:
    """Jobs of one tenant are its own affair, and many of them get no more than one."""
    beside = replace(_TINY, namespace="ml")

    assert _created(_plan([beside, _LARGE])) == {"ml/tiny": 20}
    assert _created(_plan([*_several(_TINY, 5), _LARGE])) == {
        **{f"other/tiny{i}": 2 for i in range(5)},
        "ml/large": 10,
    }


def test_a_part_that_is_not_used_goes_round_again() -> None:
    """Of three namespaces one needs little, so the others have more."""
    nearly = replace(_LARGE, name="nearly", uid="nearly", namespace="third", max_trainers=3)

    assert _created(_plan([_TINY, nearly])) == {"other/tiny": 18, "third/nearly": 2}
    assert _created(_plan([_TINY, _LARGE, nearly])) == {
        "other/tiny": 9,
        "ml/large": 9,
        "third/nearly": 2,
    }


def test_more_namespaces_than_may_be_under_way() -> None:
    """Each may have one, those with the least share first."""
    names = [f"ns{i:02}" for i in range(30)]
    jobs = [replace(_LARGE, namespace=name, name=name, uid=name) for name in names]

    created = _created(_plan(jobs, [node(f"n{i}", 200) for i in range(10)]))

    assert created == {f"{name}/{name}": 1 for name in names[:20]}


def test_whoever_comes_is_served_before_a_namespace_that_has_its_part() -> None:
    """One that was alone a moment ago fills kube-scheduler's queue; the next free places are not its own."""
    few = _plan([_TINY, _LARGE], pods=_waiting(_TINY, 15))
    none = _plan([_TINY, _LARGE], pods=_waiting(_TINY, 20))

    assert _created(few) == {"ml/large": 5}
    assert _created(none) == {}


def test_no_job_takes_what_a_poorer_one_would_have_got() -> None:
    """One more place for a large trainer, a part of which tiny ones would take before it."""
    tiny, large = replace(_TINY, max_trainers=71), replace(_LARGE, max_trainers=3)
    present = trainers(large, ["n0"] * 2)[1:]

    full = _plan([tiny, large], [node("n0", 17, pods=1000)], tuple(present))
    room = _plan([tiny, large], [node("n0", 25, pods=1000)], tuple(present))

    assert _created(full) == {"other/tiny": 20}
    assert full.growing == {"other/tiny", "ml/large"}
    assert _created(room) == {"other/tiny": 19, "ml/large": 1}


def test_room_in_pieces_is_no_room_for_a_claim() -> None:
    """Each node has a remainder that is too small for a trainer; the places go to the poorer job."""
    poor = replace(_LARGE, name="poor", uid="poor", namespace="other")
    pods = [*trainers(_LARGE, [f"n{i}" for i in range(10)]), *trainers(poor, ["free"])]
    nodes = [*(node(f"n{i}", 9) for i in range(10)), node("free", 45)]
    state = cluster_state(nodes, [poor, _LARGE], pods)

    new_plan = plan(state, _FREE, NOW_S, History())

    assert _created(new_plan) == {"other/poor": 8}


def test_a_large_trainer_takes_the_places_of_many_small_ones() -> None:
    """On one node; the cluster as a whole has room for all, in pieces too small for any."""
    tiny, large = replace(_TINY, max_trainers=61), replace(_LARGE, max_trainers=3)
    present = tuple(trainers(large, ["n0"] * 2)[1:])
    pieces = [node(f"n{i}", 0.09) for i in range(1, 201)]

    full = _plan([tiny, large], [node("n0", 17, pods=1000), *pieces], present)
    room = _plan([tiny, large], [node("n0", 25, pods=1000), *pieces], present)

    assert _created(full) == {"other/tiny": 20}
    assert _created(room) == {"other/tiny": 19, "ml/large": 1}


def test_claims_on_other_nodes_take_no_place() -> None:
    """A job that may use one node alone, with a single place, holds up nobody elsewhere."""
    requirement = Requirement("disk", "In", ("ssd",))
    bound = replace(_TINY, constraints=Constraints(terms=((requirement,),)), max_trainers=40)
    nodes = [*_NODES, node("ssd", 2.05, labels={"disk": "ssd"})]

    assert _created(_plan([bound, _LARGE], nodes))["ml/large"] == 10


def test_who_has_no_room_waits_for_a_move_and_not_for_its_turn() -> None:
    """Tiny trainers claim more than the nodes have; a large one fits nowhere whatever they do."""
    new_plan = _plan([_TINY, _LARGE], [node("n0", 9, pods=1000)])

    assert new_plan.growing == {"other/tiny"}
    assert {p.key: p.reason for p in new_plan.jobs}["ml/large"] is Reason.NO_ROOM


def test_claims_of_many_shapes_are_added_up() -> None:
    """So many that not each is compared with the places that there are for it."""
    others = [
        replace(_TINY, name=f"t{i}", uid=f"t{i}", requests=shape(0.1 + i / 1000)) for i in range(40)
    ]
    created = _created(_plan([*others, _LARGE]))

    assert created["ml/large"] == 10
    assert sum(created.values()) == 20


def test_steps_larger_than_a_part_are_taken_in_the_last_round() -> None:
    """Two namespaces with steps of 16, of which 20 may be under way: one whole step goes, then none."""
    policy = Policy(reserve=_FREE.reserve, sizes=(Sizes(allowed=(1, 17, 33)),))
    jobs = [replace(_LARGE, namespace=name, name=name, uid=name) for name in ("a", "b")]
    running = [pod for owner in jobs for pod in trainers(owner, ["n0"])]
    pods = [*running, *_waiting(jobs[0], 1), *_waiting(jobs[1], 1)]
    state = cluster_state(_NODES, jobs, pods)

    new_plan = plan(state, policy, NOW_S, _HISTORY)

    assert _created(new_plan) == {"a/a": 15}
    assert not new_plan.releases
    assert new_plan.growing == {"a/a", "b/b"}


def test_trainers_between_two_sizes_wait_for_their_turn() -> None:
    """A lost trainer will be replaced: the others of its step are not released meanwhile."""
    policy = Policy(reserve=_FREE.reserve, sizes=(Sizes(powers_of_two=True),))
    jobs = [_LARGE, replace(_TINY, namespace="ml"), replace(_TINY, name="b", uid="b")]
    pods = [*trainers(_LARGE, ["n0"] * 7), *trainers(jobs[1], ["n0"]), *trainers(jobs[2], ["n1"])]
    waiting = [trainer(jobs[1], 50 + i, created_s=NOW_S) for i in range(19)]
    state = cluster_state(_NODES, jobs, [*pods, *waiting])

    new_plan = plan(state, policy, NOW_S, _HISTORY)

    assert not [release for release in new_plan.releases if release.job == "ml/large"]


@pytest.mark.parametrize("requests", [{}, {"cpu": 0}])
def test_trainers_that_request_nothing_claim_nothing(requests: dict[str, int]) -> None:
    """Their share stays 0, but not the trainers that may be under way."""
    unmeasured = replace(_TINY, requests=requests, max_trainers=40)

    assert _created(_plan([unmeasured, _LARGE])) == {"other/tiny": 10, "ml/large": 10}


def test_trainers_without_requests_use_slots_of_pods() -> None:
    """They have a share, too, so they give way to the trainers of others."""
    bare = replace(_TINY, requests={"pods": 1})
    nodes = [replace(_NODES[0], allocatable={**_NODES[0].allocatable, "pods": 20})]
    pods = tuple(trainer(bare, 10 + i, "n0", requests=bare.requests) for i in range(18))

    new_plan = _plan([bare, _LARGE], nodes, pods)

    assert {release.job for release in new_plan.releases} == {"other/tiny"}
