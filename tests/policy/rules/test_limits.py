from dataclasses import replace

import pytest

from policy.cluster.snapshot import Job, JobCondition, JobStatus, Node, Pod
from policy.document.model import Policy, Reserve, Sizes
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
    service,
    shape,
    trainer,
    trainers,
)

_FREE = Policy(reserve=Reserve(max_load={}))
_A, _B = job("a", 1, 3), job("b", 1, 9)


def _plan(nodes: list[Node], jobs: list[Job], pods: list[Pod], policy: Policy = _FREE) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S)


def _releases(new_plan: Plan) -> list[tuple[str, Reason]]:
    return [(release.uid, release.reason) for release in new_plan.releases]


@pytest.mark.parametrize(
    ("stopped", "reason"),
    [
        (replace(_A, suspended=True), Reason.SUSPENDED),
        (replace(_A, deleting=True), Reason.ENDING),
        (
            replace(_A, status=JobStatus(conditions=(JobCondition("Complete", "True"),))),
            Reason.ENDING,
        ),
    ],
)
def test_a_stopped_job_loses_all_its_trainers(stopped: Job, reason: Reason) -> None:
    """Suspended, deleted or over: guaranteed trainers go too."""
    new_plan = _plan([node("n0", 20)], [stopped], trainers(stopped, ["n0", "n0"]))

    assert sorted(_releases(new_plan)) == [
        ("a-000", Reason.JOB_STOPPED),
        ("a-001", Reason.JOB_STOPPED),
    ]
    assert (new_plan.jobs[0].target, new_plan.jobs[0].reason) == (0, reason)


def test_above_max_the_least_loss_goes() -> None:
    """A max that was lowered is kept to, surplus and the youngest first."""
    new_plan = _plan([node("n0", 30)], [_A], trainers(_A, ["n0"] * 5))

    assert _releases(new_plan) == [("a-004", Reason.ABOVE_MAX), ("a-003", Reason.ABOVE_MAX)]


def test_missing_guaranteed_trainers_count_against_max() -> None:
    """Where min was raised on a job at its max, surplus goes as guaranteed trainers come."""
    raised = replace(_A, min_trainers=3)

    new_plan = _plan([node("n0", 30)], [raised], trainers(_A, ["n0"] * 3))

    assert len(new_plan.releases) == 2
    assert [(create.tier, create.count) for create in new_plan.creates] == [(Tier.GUARANTEED, 2)]
    assert new_plan.jobs[0].target == 3


def test_a_job_that_makes_nothing_keeps_what_it_has() -> None:
    """A finished trainer ends the job: what is missing will not come, so nobody goes for it."""
    ending = replace(_A, min_trainers=3, accounting=replace(_A.accounting, succeeded=1))

    new_plan = _plan([node("n0", 30)], [ending], trainers(_A, ["n0"] * 3))

    assert new_plan.empty


def test_trainers_the_builtin_controller_was_told_to_make_count() -> None:
    """A plain Job that was scaled above its max comes back to it, even before its pods are there."""
    plain = replace(_A, managed=False, parallelism=7)
    pods = [service(f"p{i}", 5, "n0", owner_uid=plain.uid) for i in range(2)]

    new_plan = _plan([node("n0", 50)], [plain], pods)

    assert (new_plan.jobs[0].live, new_plan.jobs[0].target) == (7, 3)
    assert new_plan.empty


def test_an_overdrawn_quota_takes_surplus() -> None:
    """Down to the quota, and never below min."""
    policy = Policy(quotas=(Quota(namespace="ml", requests={"cpu": "12"}),))
    tight = Policy(quotas=(Quota(namespace="ml", requests={"cpu": "1"}),))
    pods = trainers(_A, ["n0"] * 3)

    assert _releases(_plan([node("n0", 30)], [_A], pods, policy)) == [
        ("a-002", Reason.QUOTA_REACHED)
    ]
    assert len(_plan([node("n0", 30)], [_A], pods, tight).releases) == 2


def test_a_number_between_two_allowed_sizes_is_left() -> None:
    """Up where there is room, else down to the next allowed size."""
    policy = Policy(reserve=_FREE.reserve, sizes=(Sizes(allowed=(2, 4, 8)),))
    pods = trainers(_B, ["n0"] * 3)

    up = _plan([node("n0", 20)], [_B], pods, policy)
    down = _plan([node("n0", 18)], [_B], pods, policy)

    assert (up.jobs[0].target, _releases(up)) == (4, [])
    assert (down.jobs[0].target, _releases(down)) == (2, [("b-002", Reason.SIZE_NOT_ALLOWED)])


def test_sizes_bind_jobs_that_are_ours_only() -> None:
    """The built-in controller chooses pods by itself; its number is not cut for a size."""
    plain = replace(_B, managed=False, parallelism=3)
    pods = [service(f"p{i}", 5, "n0", owner_uid=plain.uid) for i in range(3)]
    policy = Policy(reserve=_FREE.reserve, sizes=(Sizes(allowed=(2, 8)),))

    assert _plan([node("n0", 18)], [plain], pods, policy).jobs[0].target == 3


def test_the_reserve_is_restored_a_few_trainers_at_a_time() -> None:
    """The richest job gives, the least loss first, as many as may be on the move at once."""
    pods = [*trainers(_B, ["n0"] * 6), *trainers(_A, ["n1"] * 2)]
    policy = Policy(reserve=Reserve(max_load={"cpu": 0.5}))

    new_plan = _plan([node("n0", 30), node("n1", 20)], [_A, _B], pods, policy)

    assert _releases(new_plan) == [("b-005", Reason.RESERVE_RESTORED)]


def test_what_is_leaving_restores_the_reserve_already() -> None:
    """Nobody goes for load that goes by itself."""
    pods = [*trainers(_B, ["n0"] * 2), trainer(_B, 8, "n0", deleting=True)]
    policy = Policy(reserve=Reserve(max_load={"cpu": 0.5}))

    assert _plan([node("n0", 20)], [_B], pods, policy).empty


def test_trainers_let_go_in_this_plan_count_too() -> None:
    """A trainer above max and the reserve: one goes, not two."""
    pods = trainers(_A, ["n0"] * 4)
    policy = Policy(reserve=Reserve(max_load={"cpu": 0.75}))

    assert _releases(_plan([node("n0", 20)], [_A], pods, policy)) == [("a-003", Reason.ABOVE_MAX)]


def test_only_jobs_that_use_the_resource_give() -> None:
    """A job that asks for no memory cannot restore a reserve of memory."""
    policy = Policy(reserve=Reserve(max_load={"memory": 0.5}))
    pods = [*trainers(_B, ["n0"] * 2), service("s", 1, "n0", memory=60)]

    assert _plan([node("n0", 10)], [_B], pods, policy).empty


def test_waiting_surplus_that_was_promised_room_counts_in_the_load() -> None:
    """It is the first to go when the reserve is passed."""
    pods = [*trainers(_B, ["n0"] * 2), trainer(_B, 9, created_s=NOW_S), service("s", 1, "n0")]
    policy = Policy(reserve=Reserve(max_load={"cpu": 0.6}))

    new_plan = _plan([node("n0", 20)], [_B], pods, policy)

    assert _releases(new_plan) == [("b-009", Reason.RESERVE_RESTORED)]
    assert shape(5) == _B.requests


def test_a_job_that_became_unreadable_keeps_what_it_has() -> None:
    """Nonsense in a running Job's annotations costs no trainer."""
    invalid_job = job("a", 0, 0, error="edl.training/max-trainers is 'many'")

    new_plan = plan(
        cluster_state([node("n0", 40)], [invalid_job], trainers(invalid_job, ["n0"] * 3)),
        _FREE,
        NOW_S,
    )

    assert new_plan.empty


def test_an_overdrawn_quota_takes_what_has_it_whatever_the_template_says() -> None:
    """Two of five trainers were given a GPU in place, or by admission: these go, and no others."""
    policy = Policy(quotas=(Quota(namespace="ml", requests={"nvidia.com/gpu": "0"}),))
    pods = trainers(_B, ["n0"] * 5)
    pods[2:4] = [replace(pod, requests=shape(5, gpus=1)) for pod in pods[2:4]]

    new_plan = _plan([node("n0", 25)], [_B], pods, policy)

    assert sorted(_releases(new_plan)) == [
        ("b-002", Reason.QUOTA_REACHED),
        ("b-003", Reason.QUOTA_REACHED),
    ]
    assert new_plan.releases[0].figures["resource"] == "nvidia.com/gpu"
