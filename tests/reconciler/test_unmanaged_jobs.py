from dataclasses import replace

from policy.cluster.snapshot import JobCondition, JobStatus
from policy.names import Tier
from policy.planning.plan import Create, JobPlan, Plan, Release
from policy.reasons import Reason
from reconciler.jobs import unmanaged_jobs
from tests.support.builders import job

OURS = job("ours")
PLAIN = job("plain", managed=False, parallelism=2)
RELEASE = Release("ml/ours", "u", "ml", "p", "n0", Reason.ABOVE_MAX, {"live": 6, "wanted": 5})


def _job_plan(key: str, target: int) -> JobPlan:
    return JobPlan(key, 0, target, Reason.GROWING, {"waiting": 8}, 0.0)


def test_managed_jobs_keep_their_part_of_the_plan() -> None:
    """An unmanaged job gets another parallelism instead."""
    create = Create("ml/ours", Tier.SURPLUS, ("n0", "n1"), Reason.SURPLUS)
    plan = Plan(
        jobs=(_job_plan("ml/ours", 1), _job_plan("ml/plain", 5)),
        creates=(create,),
        releases=(RELEASE,),
    )
    jobs = {j.key: j for j in (OURS, PLAIN)}
    (moved,) = unmanaged_jobs.parallelism_changes(plan, jobs)

    assert unmanaged_jobs.managed_only(plan, jobs) == plan
    assert (moved.key, moved.target, f"{moved.reason}: {moved.detail}") == (
        "ml/plain",
        5,
        "Growing: waiting for kube-scheduler to place 8 trainers first",
    )


def test_pods_of_the_built_in_controller_are_not_touched() -> None:
    """To delete one would count as a failure of its Job."""
    plan = Plan(
        creates=(Create("ml/plain", Tier.SURPLUS, ("n0", "n1"), Reason.SURPLUS),),
        releases=(replace(RELEASE, job="ml/plain"),),
    )
    jobs = {"ml/plain": PLAIN}

    assert unmanaged_jobs.managed_only(plan, jobs).empty
    assert unmanaged_jobs.parallelism_changes(plan, jobs) == ()


def test_a_parallelism_that_is_right_is_not_written() -> None:
    """Nor that of a job that is over, suspended, wrong, or unknown."""
    over = JobStatus(conditions=(JobCondition("Complete", "True"),))
    jobs = [
        replace(PLAIN, name="a", parallelism=5),
        replace(PLAIN, name="b", status=over),
        replace(PLAIN, name="c", suspended=True),
        replace(PLAIN, name="d", error="no"),
        replace(OURS, name="e"),
    ]
    plan = Plan(jobs=tuple(_job_plan(f"ml/{name}", 5) for name in "abcdef"))

    assert unmanaged_jobs.parallelism_changes(plan, {j.key: j for j in jobs}) == ()
