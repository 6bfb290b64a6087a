from dataclasses import replace

from policy.names import Tier
from policy.planning import Create, JobPlan, Plan, Release
from policy.reasons import Reason
from policy.snapshot import JobCondition, JobStatus
from reconciler import diff
from reconciler.actions import LetGo, MakeTrainers, SetParallelism
from tests.support.builders import job

OURS = job("ours")
PLAIN = job("plain", managed=False, parallelism=2)
RELEASE = Release("ml/ours", "u", "ml", "p", "n0", Reason.ABOVE_MAX, {"live": 6, "wanted": 5})


def _wanted(key: str, target: int) -> JobPlan:
    return JobPlan(key, 0, target, Reason.GROWING, {"waiting": 8}, 0.0)


def test_releases_come_before_creations() -> None:
    """They give room back sooner."""
    plan = Plan(
        jobs=(_wanted("ml/ours", 1), _wanted("ml/plain", 5)),
        creates=(Create("ml/ours", Tier.SURPLUS, ("n0", "n1"), Reason.SURPLUS),),
        releases=(RELEASE,),
    )

    assert diff.actions(plan, {j.key: j for j in (OURS, PLAIN)}) == (
        LetGo(RELEASE),
        SetParallelism(
            "ml/plain", 5, "Growing: 8 trainers of all jobs are being scheduled, enough for now"
        ),
        MakeTrainers("ml/ours", Tier.SURPLUS, ("n0", "n1"), Reason.SURPLUS),
    )


def test_pods_of_the_built_in_controller_are_not_touched() -> None:
    """To delete one would count as a failure of its Job."""
    plan = Plan(
        creates=(Create("ml/plain", Tier.SURPLUS, ("n0", "n1"), Reason.SURPLUS),),
        releases=(replace(RELEASE, job="ml/plain"),),
    )

    assert diff.actions(plan, {"ml/plain": PLAIN}) == ()


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
    plan = Plan(jobs=tuple(_wanted(f"ml/{name}", 5) for name in "abcdef"))

    assert diff.actions(plan, {j.key: j for j in jobs}) == ()
