"""Guaranteed trainers that a job has above its minimum give way as surplus does."""

from dataclasses import replace

import pytest

from policy.cluster.snapshot import Constraints, Job, Node, Pod, Requirement
from policy.document.model import Policy, Reserve
from policy.document.queue_model import Quota
from policy.names import Tier
from policy.planning.plan import Plan
from policy.planning.planner import plan
from policy.reasons import Reason
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
_LOWERED = job("a", 2, 12)
"""Its minimum was 12 when its trainers were created."""
_OTHER = job("b", 2, 2)
_SERVED = job("c", 1, 1, servers=servers(1, cpu=4), cpu=4)
_HUGE = job("e", 1, 1, cpu=50)


def _guaranteed(owner: Job, nodes: list[str]) -> list[Pod]:
    return [trainer(owner, i, where, Tier.GUARANTEED) for i, where in enumerate(nodes)]


def _plan(nodes: list[Node], jobs: list[Job], pods: list[Pod], policy: Policy = _FREE) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S)


def _releases(new_plan: Plan) -> list[tuple[str, Reason]]:
    return [(release.job, release.reason) for release in new_plan.releases]


_FULL = [node(f"n{number}", 10) for number in range(6)]
_PLACES = [f"n{number % 6}" for number in range(12)]


def test_a_lowered_minimum_lets_another_job_start() -> None:
    """On a full cluster two trainers leave for the minimum of another job, and no more."""
    new_plan = _plan(_FULL, [_LOWERED, _OTHER], _guaranteed(_LOWERED, _PLACES))

    assert _releases(new_plan) == [("ml/a", Reason.ABOVE_MIN)] * 2
    assert "ml/b starts in its place" in new_plan.releases[0].detail
    assert [(create.job, create.tier, create.count) for create in new_plan.creates] == [
        ("ml/b", Tier.GUARANTEED, 2)
    ]
    assert {release.node for release in new_plan.releases} == set(new_plan.creates[0].nodes)


def test_without_need_they_stay() -> None:
    """They work, and nobody waits: no trainer ends for its label."""
    assert _plan(_FULL, [_LOWERED], _guaranteed(_LOWERED, _PLACES)).empty


def test_surplus_on_the_node_is_left_to_kube_scheduler() -> None:
    """Where preempting surplus is enough, no guaranteed trainer leaves."""
    pods = [*_guaranteed(_LOWERED, _PLACES[:11]), trainer(_LOWERED, 20, "n5")]
    only_there = Constraints(((Requirement("metadata.name", "In", ("n5",)),),))

    new_plan = _plan(_FULL, [_LOWERED, job("b", 1, 1, constraints=only_there)], pods)

    assert new_plan.releases == ()
    assert [create.nodes for create in new_plan.creates] == [("n5",)]


def test_no_job_falls_below_its_minimum() -> None:
    """Where the excess is not enough for the other job's minimum, nothing leaves."""
    new_plan = _plan(_FULL, [_LOWERED, job("b", 11, 11)], _guaranteed(_LOWERED, _PLACES))

    assert new_plan.empty
    assert {p.key: p.reason for p in new_plan.jobs}["ml/b"] is Reason.WAITING_FOR_ROOM


def test_a_cordon_that_ended_leaves_no_guaranteed_trainers_above_min() -> None:
    """Old trainers and their replacements: the excess gives way, one without a node at once."""
    owner = job("a", 4, 12)
    pods = _guaranteed(owner, [*_PLACES[:7], ""])
    busy = [service(f"s{number}", 5, f"n{number % 6}") for number in range(7, 12)]

    new_plan = _plan(_FULL, [owner, _OTHER], [*pods, *busy])

    reasons = _releases(new_plan)
    assert reasons.count(("ml/a", Reason.ABOVE_MIN)) == 3
    assert {p.key: p.target for p in new_plan.jobs} == {"ml/a": 5, "ml/b": 2}
    unbound = next(release for release in new_plan.releases if not release.node)
    assert unbound.detail == "it has no node yet, and its job has its minimum of 4 without it"


def test_stranded_trainers_are_excess_once_their_replacements_run() -> None:
    """Below the maximum the old ones work on until the drain takes them, above it they go."""
    nodes = [node("n0", 10, unschedulable=True), node("n1", 10)]
    plans = {}
    for most in (2, 3, 4):
        owner = job("a", 2, most)
        pods = _guaranteed(owner, ["n0", "n0", "n1", "n1"])
        plans[most] = _plan(nodes, [owner, _OTHER], pods)

    released = {most: [r.node for r in new_plan.releases] for most, new_plan in plans.items()}
    assert released == {2: ["n0", "n0"], 3: ["n0"], 4: []}


def test_fairness_and_quotas_take_them_as_surplus() -> None:
    """They move to the job with the smaller share, and go where a quota is exceeded."""
    poor = job("b", 2, 12)
    pods = [*_guaranteed(_LOWERED, _PLACES[:10]), *_guaranteed(poor, ["n4", "n5"])]
    quota = Policy(quotas=(Quota(namespace="ml", requests={"cpu": "45"}),), reserve=_FREE.reserve)

    moved = _plan(_FULL, [_LOWERED, poor], pods)

    assert _releases(moved) == [("ml/a", Reason.FAIR_SHARE)]
    limited = _plan(_FULL, [_LOWERED], _guaranteed(_LOWERED, _PLACES), quota)
    assert _releases(limited) == [("ml/a", Reason.QUOTA_REACHED)] * 3


def test_an_invalid_job_has_no_excess() -> None:
    """Its minimum is unknown until its annotations are corrected."""
    invalid = replace(_LOWERED, min_trainers=0, error="no maximum")

    assert _plan(_FULL, [invalid, _OTHER], _guaranteed(_LOWERED, _PLACES)).empty


def test_excess_trainers_of_the_richest_job_leave_first() -> None:
    """Of two jobs with excess on the same node."""
    rich, poor = job("a", 1, 12), job("c", 1, 12)
    pods = [
        *_guaranteed(rich, ["n0", "n1", "n2", "n2"]),
        *_guaranteed(poor, ["n0", "n1"]),
    ]

    new_plan = _plan(_FULL[:3], [rich, poor, job("b", 1, 1)], pods)

    assert _releases(new_plan) == [("ml/a", Reason.ABOVE_MIN)]


@pytest.mark.parametrize(
    ("owner", "waiting", "needed"),
    [
        pytest.param(_OTHER, _guaranteed(_OTHER, ["", ""]), 2, id="trainers"),
        pytest.param(
            _SERVED,
            [*_guaranteed(_SERVED, ["n6"]), server(_SERVED, 0)],
            1,
            id="a parameter server",
        ),
        pytest.param(
            _SERVED,
            [*_guaranteed(_SERVED, [""]), server(_SERVED, 0, "n6"), service("s", 5)],
            1,
            id="beside a service",
        ),
    ],
)
def test_room_is_made_until_the_waiting_pods_have_it(
    owner: Job, waiting: list[Pod], needed: int
) -> None:
    """The pods exist, and what should leave for them is still there: its eviction was refused."""
    pods = [*_guaranteed(_LOWERED, _PLACES), *waiting]

    new_plan = _plan([*_FULL, node("n6", 4)], [_LOWERED, owner], pods)

    assert _releases(new_plan) == [("ml/a", Reason.ABOVE_MIN)] * needed


@pytest.mark.parametrize(
    ("owner", "waiting"),
    [
        pytest.param(replace(_HUGE, uid="later"), _guaranteed(_HUGE, [""]), id="earlier Job"),
        pytest.param(
            replace(_OTHER, suspended=True), _guaranteed(_OTHER, [""]), id="suspended job"
        ),
        pytest.param(_HUGE, _guaranteed(_HUGE, [""]), id="larger than any node"),
    ],
)
def test_no_room_is_made_for_pods_that_cannot_use_it(owner: Job, waiting: list[Pod]) -> None:
    """Those of an earlier Job of the name and of a suspended one, and one that fits no node."""
    new_plan = _plan(_FULL, [_LOWERED, owner], [*_guaranteed(_LOWERED, _PLACES), *waiting])

    assert not [release for release in new_plan.releases if release.job == "ml/a"]


def test_only_as_many_waiting_pods_are_served_as_there_is_room_for() -> None:
    """Of two that wait for the place of one, the second has none yet."""
    waiting = [trainer(_OTHER, number, "", Tier.GUARANTEED, priority=-8) for number in range(2)]
    pods = [*_guaranteed(_LOWERED, ["n0"] * 3), service("full", 1, "n1"), *waiting]

    new_plan = _plan([node("n0", 15), node("n1", 1)], [_LOWERED, _OTHER], pods)

    assert _releases(new_plan) == [("ml/a", Reason.ABOVE_MIN)]
