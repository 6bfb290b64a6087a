"""What other jobs give for one that changes what it asks for again and again."""

from dataclasses import replace
from typing import Any

import pytest

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy, Reserve
from policy.document.queue_model import Queue, Quota
from policy.names import Tier
from policy.planning.demand import DemandHistory, Period, of
from policy.planning.plan import History, JobPlan, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, servers, service, trainers

_FREE = Policy(reserve=Reserve(max_load={}))
_A, _B = job("a", 1, 9), job("b", 1, 20)
_FULL = [node("n0", 50)]


def _history(owner: Job, **fields: Any) -> History:
    """A history in which a job has changed three times, its size has not, and five were given for it."""
    values = {"changes": 3, "gains": 5, "fewest": 2, "most": 2} | fields
    lately = (Period(NOW_S - 60, **values),)
    return History(demands={owner.uid: DemandHistory(of(owner), 0.0, lately)})


def _plan(
    jobs: list[Job],
    pods: list[Pod],
    history: History | None = None,
    *,
    nodes: list[Node] = _FULL,
    policy: Policy = _FREE,
) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S, history)


def _of(owner: Job, new_plan: Plan) -> JobPlan:
    return next(job_plan for job_plan in new_plan.jobs if job_plan.key == owner.key)


def _gains(owner: Job, new_plan: Plan) -> int:
    return new_plan.demands[owner.uid].gains


_UNEVEN = [*trainers(_A, ["n0"] * 2), *trainers(_B, ["n0"] * 8)]


def test_a_restless_job_gets_no_trainers_of_others() -> None:
    """It says so, and until when; a job that has changed once gets them, and they are counted."""
    held = _plan([_A, _B], _UNEVEN, _history(_A))
    once = _plan([_A, _B], _UNEVEN, _history(_A, changes=1))

    assert not held.releases
    assert _of(_A, held).reason is Reason.CHANGED_OFTEN
    assert _of(_A, held).detail == (
        "the job takes no more trainers from others until 1970-01-02T04:55:40Z: "
        "within an hour it changed 3 times, failed 0 times and took 5 trainers"
    )
    assert [release.reason for release in once.releases] == [Reason.FAIR_SHARE]
    assert (_gains(_A, held), _gains(_A, once)) == (5, 6)


def test_a_trainer_that_a_budget_keeps_counts_once() -> None:
    """Its eviction is asked for in each plan until it is allowed."""
    first = _plan([_A, _B], _UNEVEN, _history(_A, changes=1))
    again = _plan([_A, _B], _UNEVEN, History(moved=first.moved, demands=dict(first.demands)))

    assert [release.uid for release in again.releases] == [
        release.uid for release in first.releases
    ]
    assert (_gains(_A, first), _gains(_A, again)) == (6, 6)


def test_moves_end_where_the_hour_is_used_up() -> None:
    """Of three trainers that are due to it, it gets the one that is left."""
    policy = Policy.model_validate({"reserve": {"maxLoad": {}}, "stability": {"maxMoves": 1.0}})

    new_plan = _plan([_A, _B], _UNEVEN, _history(_A, gains=0, most=1, fewest=1), policy=policy)
    fewer = _plan([_A, _B], _UNEVEN, _history(_A, most=4), policy=policy)

    assert (len(new_plan.releases), _gains(_A, new_plan)) == (3, 3)
    assert (len(fewer.releases), _gains(_A, fewer)) == (1, 6)


def test_it_grows_where_room_is_free() -> None:
    """That costs nobody a trainer, and does not count."""
    new_plan = _plan([_A, _B], _UNEVEN, _history(_A, gains=9), nodes=[node("n0", 55)])
    assert [(create.job, create.count) for create in new_plan.creates] == [("ml/a", 1)]
    assert _gains(_A, new_plan) == 9


def test_nobody_else_is_held() -> None:
    """A restless job still gives, and what other jobs give each other does not count for it."""
    c = job("c", 1, 9)
    pods = [*trainers(_A, ["n0"] * 8), *trainers(c, ["n0"] * 2)]

    new_plan = _plan([_A, c], pods, _history(_A))

    assert [release.job for release in new_plan.releases] == ["ml/a"]
    assert _gains(_A, new_plan) == 5


@pytest.mark.parametrize("changes", [1, 3])
def test_its_minimum_takes_no_room_of_surplus(changes: int) -> None:
    """After its second change; all of it or nothing, as ever. After the first it does, and grows by a move."""
    new = job("a", 3, 9)
    others = replace(_B, max_trainers=10)
    pods = trainers(others, ["n0"] * 10)

    new_plan = _plan([new, others], pods, _history(new, fewest=0, most=0, changes=changes))

    assert [create.count for create in new_plan.creates] == [3] * (changes == 1)
    assert (_of(new, new_plan).reason is Reason.CHANGED_OFTEN) == (changes == 3)
    assert len(new_plan.releases) == (3 + 1 if changes == 1 else 0)
    assert _gains(new, new_plan) == (5 + 3 + 1 if changes == 1 else 5)


def test_its_minimum_starts_on_free_room() -> None:
    """Whatever was given for it."""
    new = job("a", 3, 3)
    new_plan = _plan([new, _B], trainers(_B, ["n0"] * 7), _history(new, fewest=0, most=0))
    assert [(create.job, create.count) for create in new_plan.creates] == [("ml/a", 3)]


def test_room_that_pods_leave_counts_as_taken() -> None:
    """Until they have ended, kube-scheduler may preempt others for a guaranteed trainer."""
    new = job("a", 1, 1)
    leaving = service("s", 5, "n0", deleting=True)
    pods = [*trainers(_B, ["n0"] * 9), leaving]

    held = _plan([new, _B], pods, _history(new, fewest=0, most=0))
    first = _plan([new, _B], pods, _history(new, changes=1, gains=0))

    assert not held.creates
    assert _gains(new, first) == 1


def test_a_larger_minimum_is_completed_as_far_as_others_give() -> None:
    """A job that runs gets a part of what it lacks: one trainer on free room, and one of another job."""
    larger = replace(_A, min_trainers=6)
    pods = [*trainers(_A, ["n0"] * 2), *trainers(_B, ["n0"] * 7)]
    history = _history(larger, most=4)

    new_plan = _plan([larger, _B], pods, history)

    assert [(create.job, create.count) for create in new_plan.creates] == [("ml/a", 2)]
    assert _of(larger, new_plan).reason is Reason.CHANGED_OFTEN


def test_failures_do_not_keep_a_minimum_from_coming_back() -> None:
    """Only its surplus waits."""
    history = _history(_A, changes=0, failures=9)
    lost = _plan([_A, _B], trainers(_B, ["n0"] * 10), history)

    assert [create.tier for create in lost.creates] == [Tier.GUARANTEED]
    assert _of(_A, _plan([_A, _B], _UNEVEN, history)).reason is Reason.CHANGED_OFTEN


def test_parameter_servers_take_no_room_of_surplus_either() -> None:
    """Neither they nor the trainers that start with them."""
    new = job("a", 1, 1, servers=servers(2, 5))
    others = replace(_B, max_trainers=9)
    pods = trainers(others, ["n0"] * 9)
    first = _plan([new, others], pods, _history(new, changes=1, gains=0, fewest=0, most=0))
    held = _plan([new, others], pods, _history(new, fewest=0, most=0))

    assert [serve.numbers for serve in first.server_creates] == [(0, 1)]
    assert _gains(new, first) == 2
    assert not held.creates
    assert not held.server_creates
    assert _of(new, held).reason is Reason.CHANGED_OFTEN


def test_no_surplus_leaves_a_quota_for_its_minimum() -> None:
    """As none leaves a node for it."""
    quota = _FREE.model_copy(update={"quotas": (Quota(namespace="ml", requests={"cpu": "50"}),)})
    new, nodes = job("a", 2, 2), [node("n0", 90)]
    others = replace(_B, max_trainers=9)
    pods = trainers(others, ["n0"] * 9)

    once = _plan([new, others], pods, _history(new, changes=1), nodes=nodes, policy=quota)
    held = _plan([new, others], pods, _history(new, fewest=0, most=0), nodes=nodes, policy=quota)

    assert [release.reason for release in once.releases] == [Reason.QUOTA_REACHED]
    assert _gains(new, once) == 6
    assert not held.releases
    assert not held.creates
    assert _of(new, held).reason is Reason.CHANGED_OFTEN


def test_nothing_borrowed_returns_to_it() -> None:
    """An owner's job that changes again and again waits for it as for a fair share."""
    queues = (
        Queue(name="a", namespaces=("*",), nominal_quota={"cpu": "25"}),
        Queue(name="b", namespaces=("*",), nominal_quota={"cpu": "25"}),
    )
    policy = _FREE.model_copy(update={"queues": queues})
    owner, borrower = replace(_A, queue="a"), replace(_B, queue="b")

    free = _plan([owner, borrower], _UNEVEN, policy=policy)
    held = _plan([owner, borrower], _UNEVEN, _history(owner), policy=policy)

    assert {release.reason for release in free.releases} == {Reason.SHARE_RETURNED}
    assert not held.releases
