from dataclasses import replace

import pytest

from policy.cluster.snapshot import Job, Node, Pod, TrainerAccounting
from policy.document.model import NodePool, Policy, Reserve
from policy.document.queue_model import Quota
from policy.names import Tier
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.planning.rules.admission import backoff_s
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, service, trainer, trainers

_FREE = Policy(reserve=Reserve(max_load={}))
_A = job("a", 1, 9)
_NEW = job("new", 2, 2)


def _plan(nodes: list[Node], jobs: list[Job], pods: list[Pod], policy: Policy = _FREE) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S)


def _created(new_plan: Plan, key: str) -> dict[Tier, int]:
    return {create.tier: create.count for create in new_plan.creates if create.job == key}


def _reason(new_plan: Plan, key: str) -> Reason:
    return next(job_plan.reason for job_plan in new_plan.jobs if job_plan.key == key)


def test_a_job_starts_with_its_whole_minimum() -> None:
    """On free room."""
    new_plan = _plan([node("n0", 10)], [_NEW], [])

    assert _created(new_plan, "ml/new") == {Tier.GUARANTEED: 2}
    assert new_plan.creates[0].reason is Reason.GUARANTEED


def test_a_job_starts_on_what_surplus_holds() -> None:
    """A full cluster starts it at once; kube-scheduler preempts for its pods."""
    new_plan = _plan([node("n0", 15)], [_A, _NEW], trainers(_A, ["n0"] * 3))

    assert _created(new_plan, "ml/new") == {Tier.GUARANTEED: 2}
    assert not new_plan.releases


def test_all_or_nothing() -> None:
    """Half a minimum is not started, and what it would have taken is not held back."""
    new_plan = _plan([node("n0", 8)], [_NEW, _A], [])

    assert not _created(new_plan, "ml/new")
    assert _created(new_plan, "ml/a") == {Tier.GUARANTEED: 1}
    assert _reason(new_plan, "ml/new") is Reason.WAITING_FOR_ROOM


def test_the_oldest_job_is_first() -> None:
    """Whatever its name."""
    old = replace(_NEW, name="z", created_s=1.0)

    new_plan = _plan([node("n0", 10)], [_NEW, old], [])

    assert _created(new_plan, "ml/z") == {Tier.GUARANTEED: 2}
    assert not _created(new_plan, "ml/new")


def test_a_running_job_gets_back_what_it_lost() -> None:
    """One guaranteed trainer of two is missing: it is made even where both would not fit."""
    lost = job("lost", 3, 3)

    new_plan = _plan([node("n0", 12)], [lost], trainers(lost, ["n0"]))

    assert _created(new_plan, "ml/lost") == {Tier.GUARANTEED: 1}
    assert new_plan.jobs[0].detail == "no capacity for 1 guaranteed trainer (5 cpu each)"


def test_waiting_guaranteed_trainers_are_not_made_twice() -> None:
    """They count, and so does their room."""
    waiting = [trainer(_NEW, i, tier=Tier.GUARANTEED) for i in range(2)]

    assert _plan([node("n0", 10)], [_NEW], waiting).empty


def test_a_trainer_too_large_for_every_node_is_said_so() -> None:
    """It is not waiting for room that can never come."""
    huge = job("huge", 1, 2, cpu=50)
    pools = Policy(node_pools=(NodePool(name="none", labels={"pool": "x"}),))

    assert _reason(_plan([node("n0", 20)], [huge], []), "ml/huge") is Reason.FITS_NO_NODE
    assert _reason(_plan([node("n0", 20)], [_NEW], [], pools), "ml/new") is Reason.FITS_NO_NODE
    assert _reason(_plan([], [_NEW], []), "ml/new") is Reason.FITS_NO_NODE


def test_a_quota_can_hold_a_job_back() -> None:
    """Quotas below min are a reason, never a half-started job."""
    policy = Policy(quotas=(Quota(namespace="ml", requests={"cpu": "8"}),))

    new_plan = _plan([node("n0", 20)], [_NEW], [], policy)

    assert new_plan.empty
    assert _reason(new_plan, "ml/new") is Reason.QUOTA_REACHED


def test_a_start_that_is_called_off_takes_nothing_of_the_quota() -> None:
    """Others of the namespace grow meanwhile: as far as nodes, not quota, have room."""
    policy = Policy(reserve=_FREE.reserve, quotas=(Quota(namespace="ml", requests={"cpu": "15"}),))
    large = job("large", 3, 3)

    new_plan = _plan([node("n0", 10)], [large, job("z", 1, 9, created_s=NOW_S)], [], policy)

    assert not _created(new_plan, "ml/large")
    assert _created(new_plan, "ml/z") == {Tier.GUARANTEED: 1, Tier.SURPLUS: 1}
    assert _reason(new_plan, "ml/z") is Reason.NO_ROOM


def test_surplus_in_the_same_quota_makes_way_for_a_minimum() -> None:
    """The richest job releases what is needed, and the figures name the job that gets it."""
    policy = Policy(reserve=_FREE.reserve, quotas=(Quota(namespace="ml", requests={"cpu": "25"}),))
    other = job("b", 1, 9)
    pods = [*trainers(_A, ["n0"] * 3), *trainers(other, ["n0"] * 2)]

    new_plan = _plan([node("n0", 50)], [_A, other, _NEW], pods, policy)

    assert [(r.uid, r.reason) for r in new_plan.releases] == [
        ("a-002", Reason.QUOTA_REACHED),
        ("b-001", Reason.QUOTA_REACHED),
    ]
    assert new_plan.releases[0].detail == "ml/new starts first within the same quota"
    assert _created(new_plan, "ml/new") == {Tier.GUARANTEED: 2}


def test_surplus_makes_way_in_a_quota_once() -> None:
    """What it gives back to one minimum is not there for the next one of the same plan."""
    policy = Policy(reserve=_FREE.reserve, quotas=(Quota(namespace="ml", requests={"cpu": "25"}),))
    next_one = job("next", 1, 1, created_s=_NEW.created_s + 1.0)

    new_plan = _plan([node("n0", 50)], [_A, _NEW, next_one], trainers(_A, ["n0"] * 5), policy)

    assert len(new_plan.releases) == 3
    assert _created(new_plan, "ml/new") == {Tier.GUARANTEED: 2}
    assert _created(new_plan, "ml/next") == {Tier.GUARANTEED: 1}


@pytest.mark.parametrize(("quota", "cpu"), [("10", 50), ("15", 15)])
def test_surplus_stays_where_its_going_would_not_help(quota: str, cpu: int) -> None:
    """Too small a quota, or no node with room for the minimum: nobody goes."""
    policy = Policy(reserve=_FREE.reserve, quotas=(Quota(namespace="ml", requests={"cpu": quota}),))
    wide = job("wide", 2, 2, cpu=5)
    pods = [*trainers(_A, ["n0"] * 2), service("s", cpu - 10, "n0")]
    if quota == "10":
        pods.pop()
        wide = job("wide", 3, 3, cpu=5)

    new_plan = _plan([node("n0", cpu)], [_A, wide], pods, policy)

    assert new_plan.empty
    assert _reason(new_plan, "ml/wide") in (Reason.QUOTA_REACHED, Reason.WAITING_FOR_ROOM)


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(0, 0.0), (1, 10.0), (2, 20.0), (5, 160.0), (7, 360.0), (10**9, 360.0)]
)
def test_failures_in_a_row_are_waited_out(failures: int, wait_s: float) -> None:
    """10 s doubling to 6 minutes, however many there were."""
    assert backoff_s(failures) == wait_s


def test_a_job_that_backs_off_makes_no_trainer() -> None:
    """Neither guaranteed nor surplus; afterwards it does."""
    failing = replace(
        _A, accounting=TrainerAccounting(failures_in_row=2, last_failure_s=NOW_S - 19.0)
    )
    over = replace(_A, accounting=TrainerAccounting(failures_in_row=2, last_failure_s=NOW_S - 20.0))

    new_plan = _plan([node("n0", 20)], [failing], [])

    assert new_plan.empty
    assert new_plan.jobs[0].reason is Reason.BACKING_OFF
    assert new_plan.jobs[0].detail == "2 failures in a row; next attempt at 1970-01-02T03:46:41Z"
    grown = _plan([node("n0", 20)], [failing], trainers(failing, ["n0"]))
    assert (grown.empty, grown.jobs[0].reason) == (True, Reason.BACKING_OFF)
    assert _plan([node("n0", 20)], [over], []).jobs[0].target == 4


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (replace(_A, error="min is 5 and max is 4"), Reason.INVALID),
        (replace(_A, suspended=True), Reason.SUSPENDED),
        (replace(_A, accounting=TrainerAccounting(succeeded=1)), Reason.ENDING),
    ],
)
def test_some_jobs_get_nothing(odd: Job, reason: Reason) -> None:
    """Invalid, suspended, or with the work done: the reason tells these apart."""
    new_plan = _plan([node("n0", 20)], [odd], [])

    assert new_plan.empty
    assert new_plan.jobs[0].reason is reason


def test_jobs_of_the_builtin_controller_are_told_their_number() -> None:
    """Trainers that it should create count as existing."""
    plain = job("plain", 2, 3, managed=False, parallelism=1)

    new_plan = _plan([node("n0", 20)], [plain], [])

    assert (new_plan.jobs[0].live, new_plan.jobs[0].target) == (1, 3)


def test_cooling_nodes_are_open_to_guaranteed_trainers() -> None:
    """They outrank the patience that surplus must have."""
    cluster = cluster_state([node("n0", 20)], [_A])

    new_plan = plan(cluster, _FREE, NOW_S, History(cooling={"n0": NOW_S + 1}))

    assert _created(new_plan, "ml/a") == {Tier.GUARANTEED: 1}


def test_jobs_in_protected_namespaces_are_not_planned() -> None:
    """Whatever they ask for: what is out of reach is neither grown nor shrunk."""
    away = job("away", 1, 4, namespace="kube-system")

    new_plan = plan(
        cluster_state([node("n0")], [away], ()), Policy(protected_namespaces=("kube-*",)), NOW_S
    )

    assert new_plan.empty
    assert not new_plan.jobs
