"""Cases that the plan or a victim choice once got wrong, as plain tests."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy, Window
from policy.names import Tier
from policy.planning.load import active_window, load_limits
from policy.planning.plan import Plan
from policy.planning.planner import plan
from policy.planning.quotas import Quotas
from policy.reasons import Reason
from tests.support.builders import (
    LONG_AGO_S,
    NOW_S,
    cluster_state,
    job,
    node,
    service,
    trainer,
    trainers,
)
from tests.support.simulate import Cluster

_A, _B = job("a", 1, 9), job("b", 1, 9)


def _policy(**fields: object) -> Policy:
    return Policy.model_validate({"reserve": {"maxLoad": {}}} | fields)


def _plan(nodes: list[Node], jobs: list[Job], pods: list[Pod], policy: Policy) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S)


def _short(owner: Job) -> list[Pod]:
    """A job that lost its guaranteed trainers: surplus stands in for its minimum."""
    return [trainer(owner, i, "n0") for i in range(3)]


def test_the_reserve_leaves_a_minimum_that_surplus_stands_in_for() -> None:
    """Three surplus trainers of a job with a minimum of three are not given up for the reserve."""
    short = job("short", 3, 9)
    policy = Policy.model_validate({"reserve": {"maxLoad": {"cpu": 0.1}}})
    failing = replace(
        short, accounting=replace(short.accounting, failures_in_row=3, last_failure_s=NOW_S - 1)
    )

    new_plan = _plan([node("n0", 20)], [failing], _short(failing), policy)

    assert new_plan.empty
    assert new_plan.jobs[0].target == 3


def test_a_quota_leaves_a_minimum_that_surplus_stands_in_for() -> None:
    """Nor for a quota that was lowered, nor for another job that starts in it."""
    short, new = job("short", 3, 9), job("new", 1, 1)
    failing = replace(
        short, accounting=replace(short.accounting, failures_in_row=3, last_failure_s=NOW_S - 1)
    )

    for cpu in ("5", "15"):
        policy = _policy(quotas=[{"namespace": "ml", "requests": {"cpu": cpu}}])
        assert _plan([node("n0", 40)], [failing, new], _short(failing), policy).empty


def test_a_quota_says_which_and_by_how_much() -> None:
    """Below a minimum, in the way of growth, and overdrawn."""
    policy = _policy(quotas=[{"queue": "night", "requests": {"cpu": "8", "memory": "1Gi"}}])
    new = job("new", 2, 3, queue="night")
    full = replace(_A, queue="night")

    below = _plan([node("n0", 40)], [new], [], policy)
    growth = _plan([node("n0", 40)], [full], trainers(full, ["n0"]), policy)
    overdrawn = _plan([node("n0", 40)], [full], trainers(full, ["n0"] * 2), policy)

    assert below.jobs[0].reason is Reason.QUOTA_REACHED
    assert below.jobs[0].detail == (
        "the quota of queue night (8 cpu) is 2 too small for 1 more trainer"
    )
    assert growth.jobs[0].detail == "the quota of queue night (8 cpu) is 2 too small"
    assert overdrawn.releases[0].detail == "the quota of queue night (8 cpu) is 2 too small"


def test_limits_have_quotas_of_their_own() -> None:
    """A trainer's limit counts, or its request where it has none."""
    policy = _policy(quotas=[{"namespace": "ml", "limits": {"cpu": "20"}}])
    burst = replace(_A, limits={"cpu": 10_000})

    bounded = _plan([node("n0", 90)], [burst], trainers(burst, ["n0"]), policy)
    without = _plan([node("n0", 90)], [_B], trainers(_B, ["n0"]), policy)

    assert (bounded.jobs[0].target, without.jobs[0].target) == (2, 4)
    assert bounded.jobs[0].detail == "the quota of namespace ml (20 limits.cpu) is 10 too small"


def test_no_quota_lacks_nothing() -> None:
    """Where all quotas have room there is nothing to say."""
    policy = _policy(quotas=[{"queue": "night", "requests": {"cpu": "8"}}])

    assert Quotas(policy, cluster_state()).lack(_A, 100) == {}


def test_trainers_told_to_be_made_count_in_quotas() -> None:
    """The number set for the built-in controller counts before its pods exist."""
    policy = _policy(quotas=[{"namespace": "ml", "requests": {"cpu": "10"}}])
    plain = job("plain", 1, 3, managed=False, parallelism=3)

    new_plan = _plan([node("n0", 40)], [plain, _A], [], policy)

    assert {job_plan.key: job_plan.target for job_plan in new_plan.jobs} == {
        "ml/a": 0,
        "ml/plain": 2,
    }


@pytest.mark.parametrize(("age_s", "released"), [(11.9, False), (12.0, True)])
def test_a_trainer_that_was_put_aside_is_taken_back(age_s: float, *, released: bool) -> None:
    """It has room, but kube-scheduler does not look at it again: after four times the patience."""
    waiting = trainer(_A, 5, created_s=NOW_S - age_s)

    new_plan = _plan([node("n0", 10)], [_A], [*trainers(_A, ["n0"]), waiting], _policy())

    details = [release.detail for release in new_plan.releases]
    assert details == ["kube-scheduler did not use the free capacity for 12 s"] * released


def test_a_step_is_awaited_whole() -> None:
    """Half of a step's room is free, half is leaving: a richer job must not take the free half."""
    policy = _policy(sizes=[{"namespaces": ["ml"], "allowed": [2, 4]}])
    even, odd = job("even", 2, 4), job("odd", 1, 9, namespace="other")
    leaving = service("s", 5, "n0", deleting=True)
    pods = [*trainers(even, ["n0"] * 2), *trainers(odd, ["n1"] * 3), leaving]

    new_plan = _plan([node("n0", 20), node("n1", 15)], [even, odd], pods, policy)

    assert new_plan.empty


def test_a_step_that_comes_only_in_part_is_not_awaited() -> None:
    """Then others may have what is free."""
    policy = _policy(sizes=[{"namespaces": ["ml"], "allowed": [2, 8]}])
    even, odd = job("even", 2, 8), job("odd", 1, 9, namespace="other")
    leaving = service("s", 5, "n0", deleting=True)
    pods = [*trainers(even, ["n0"] * 2), *trainers(odd, ["n1"] * 3), leaving]

    new_plan = _plan([node("n0", 20), node("n1", 15)], [even, odd], pods, policy)

    assert [(create.job, create.count) for create in new_plan.creates] == [("other/odd", 1)]


def test_guaranteed_trainers_of_a_full_job_are_enough() -> None:
    """Trainers above the minimum are spare, in whatever tier."""
    pods = trainers(job("a", 2, 9), ["n0"] * 4)

    assert [pod.tier for pod in pods].count(Tier.SURPLUS) == 2
    assert pods[0].created_s == LONG_AGO_S


def _night(**fields: object) -> Window:
    values = {"name": "w", "start": "01:00", "end": "03:00", "timeZone": "Europe/Berlin"}
    return Window.model_validate(values | {"maxLoad": {"cpu": 0.5}} | fields)


@pytest.mark.parametrize(
    ("window", "utc", "inside"),
    [
        # 2026-03-29: 02:00 CET becomes 03:00 CEST at 01:00 UTC
        (_night(), "2026-03-29T00:59:59", True),
        (_night(), "2026-03-29T01:00:00", False),
        (_night(start="02:10", end="02:50"), "2026-03-29T01:20:00", False),
        (_night(start="02:30", end="03:30"), "2026-03-29T01:00:00", True),
        (_night(start="22:00", end="06:00", days=["sat"]), "2026-03-29T03:59:59", True),
        (_night(start="22:00", end="06:00", days=["sat"]), "2026-03-29T04:00:00", False),
        # 2026-10-25: 03:00 CEST becomes 02:00 CET at 01:00 UTC, so 02:30 comes twice
        (_night(), "2026-10-25T00:59:59", True),
        (_night(), "2026-10-25T01:30:00", True),
        (_night(), "2026-10-25T02:00:00", False),
        (_night(start="22:00", end="06:00", days=["sat"]), "2026-10-25T04:59:59", True),
        (_night(start="22:00", end="06:00", days=["sun"]), "2026-10-25T04:59:59", False),
    ],
)
def test_windows_follow_the_wall_clock_when_it_is_changed(
    window: Window, utc: str, *, inside: bool
) -> None:
    """An hour left out is left out, an hour that comes twice counts twice."""
    now = datetime.fromisoformat(utc).replace(tzinfo=UTC)

    assert (active_window(Policy(windows=(window,)), now) is window) is inside


def test_day_for_serving_and_night_for_training() -> None:
    """By day half is kept, by night all but the headroom may be used."""
    policy = Policy.model_validate(
        {
            "reserve": {"maxLoad": {"cpu": 0.5}, "headroom": {"cpu": "10%"}},
            "windows": [
                {"name": "night", "start": "22:00", "end": "06:00", "maxLoad": {"cpu": 1.0}}
            ],
        }
    )
    total = {"cpu": 100_000}

    def at(hour: int) -> dict[str, int]:
        return load_limits(policy, total, datetime(2026, 11, 2, hour, tzinfo=UTC))

    assert at(12) == {"cpu": 40_000}
    assert at(23) == at(5) == {"cpu": 90_000}
    assert at(6) == {"cpu": 40_000}


def test_two_shapes_made_together_do_not_go_round() -> None:
    """Each goes where it was planned: else others fill the node that three of 8 GiB were given."""
    large = job("a", 1, 6, cpu=3, memory=4)
    deep = job("b", 1, 7, cpu=1, memory=8)
    policy = _policy(
        fairness={"by": "fulfilment"}, stability={"gainThreshold": 0.0, "maxMoves": 1.0}
    )
    cluster = Cluster([node("n0", 14, memory=16), node("n1", 7)], [large, deep])

    cluster.settle(policy, 60)


def test_the_quota_counts_those_that_wait_and_leaves_a_minimum_of_them() -> None:
    """Of three that wait it takes one; that no node has room for the others is another matter."""
    owner = job("a", 1, 4, cpu=4)
    waiting = [trainer(owner, number, created_s=LONG_AGO_S) for number in range(3)]
    quota = _policy(quotas=[{"namespace": "ml", "requests": {"cpu": 11}}])

    new_plan = _plan([node("n0", 2)], [owner], waiting, quota)

    assert sorted(release.reason for release in new_plan.releases) == [
        Reason.NOT_SCHEDULED,
        Reason.NOT_SCHEDULED,
        Reason.QUOTA_REACHED,
    ]
