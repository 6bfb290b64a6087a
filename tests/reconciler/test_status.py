from dataclasses import replace

import pytest

from kube import decode
from policy.cluster.snapshot import Job, JobCondition, JobStatus, Phase, Pod, TrainerAccounting
from policy.decisions import Figure
from policy.planning.plan import JobPlan
from policy.reasons import Reason
from reconciler.jobs import status
from reconciler.masters.reports import MasterReport, ReportedState
from tests.support.builders import NOW_S, job, trainer

JOB = job("net", 2, 4, status=JobStatus(start_s=NOW_S - 100))
PODS = [trainer(JOB, 0, "n0"), trainer(JOB, 1, "n0"), trainer(JOB, 2)]


def _types(new: JobStatus) -> list[str]:
    return [c.type for c in new.conditions if c.status == "True"]


def _ended(accounting: TrainerAccounting, pods: list[Pod], owner: Job = JOB) -> JobStatus:
    return status.status(owner, pods, accounting, NOW_S)


def test_pods_are_counted_as_batch_does() -> None:
    """Active are those that stay, ready the running of them, terminating the others."""
    leaving = replace(trainer(JOB, 3, "n0"), deleting=True)
    over = replace(trainer(JOB, 4, "n0"), phase=Phase.FAILED)
    new = _ended(TrainerAccounting(failed=1), [*PODS, leaving, over])

    assert (new.active, new.ready, new.terminating, new.failed) == (3, 2, 1, 1)


def test_a_trainer_is_ready_when_it_runs_and_says_so() -> None:
    """One of both alone is not enough: it loads its data, or is about to end."""
    starting = replace(trainer(JOB, 3, "n0"), ready=False)
    pending = replace(trainer(JOB, 4, "n0"), phase=Phase.PENDING)

    assert _ended(TrainerAccounting(), [starting, pending]).ready == 0


def test_a_job_that_began_keeps_its_start() -> None:
    """Its startTime is set once."""
    assert _ended(TrainerAccounting(), PODS).start_s == NOW_S - 100
    assert _ended(TrainerAccounting(), [], replace(JOB, status=JobStatus())).start_s == NOW_S


def test_counts_never_fall() -> None:
    """Books that were edited or lost do not take back what was reported."""
    before = replace(JOB, status=JobStatus(succeeded=1, failed=3, start_s=1.0))
    new = _ended(TrainerAccounting(), PODS, before)

    assert (new.succeeded, new.failed) == (1, 3)


def test_success_waits_for_the_other_trainers() -> None:
    """Work-queue semantics: nothing is made any more, but what runs may finish."""
    assert _types(_ended(TrainerAccounting(succeeded=1), PODS)) == []


def test_success_waits_for_those_that_are_leaving() -> None:
    """Complete promises that no pod is left."""
    leaving = replace(trainer(JOB, 3, "n0"), deleting=True)

    assert _types(_ended(TrainerAccounting(succeeded=1), [leaving])) == []


def test_success_with_nobody_left_is_complete() -> None:
    """Both conditions and the completion time come together."""
    new = _ended(TrainerAccounting(succeeded=1), [])

    assert _types(new) == ["SuccessCriteriaMet", "Complete"]
    assert new.completion_s == NOW_S


def test_a_job_does_not_end_before_its_start() -> None:
    """The clock of the replica that leads now may be behind that of the one before."""
    later = replace(JOB, status=JobStatus(start_s=NOW_S + 3))

    assert _ended(TrainerAccounting(succeeded=1), [], later).completion_s == NOW_S + 3


def test_a_failure_after_a_success_changes_nothing() -> None:
    """The work is done, however many trainers fail on the way out."""
    assert _types(_ended(TrainerAccounting(succeeded=1, failed=9), [])) == [
        "SuccessCriteriaMet",
        "Complete",
    ]


def test_a_job_may_fail_as_often_as_its_limit_says() -> None:
    """`backoffLimit` failures are allowed; disruptions do not count at all."""
    limited = replace(JOB, backoff_limit=2)

    assert _types(_ended(TrainerAccounting(failed=2, disrupted=50), PODS, limited)) == []


@pytest.mark.parametrize(("excused", "ends"), [(3, False), (2, True)])
def test_excused_failures_do_not_count_towards_the_limit(excused: int, *, ends: bool) -> None:
    """They are in `failed` of the status all the same."""
    limited = replace(JOB, backoff_limit=2)
    new = _ended(TrainerAccounting(failed=5, excused=excused), PODS, limited)

    assert new.failed == 5
    assert _types(new) == ["FailureTarget"] * ends
    assert all(c.message.startswith("3 trainers failed") for c in new.conditions)


def test_an_end_comes_in_two_steps() -> None:
    """FailureTarget while trainers are still there, Failed once none is left."""
    limited = replace(JOB, backoff_limit=2)
    first = _ended(TrainerAccounting(failed=3), PODS, limited)
    second = _ended(TrainerAccounting(failed=3), [], replace(limited, status=first))

    assert _types(first) == ["FailureTarget"]
    assert _types(second) == ["FailureTarget", "Failed"]
    assert {c.reason for c in second.conditions} == {"BackoffLimitExceeded"}
    assert "backoffLimit 2" in second.conditions[0].message
    assert second.completion_s == 0.0


def test_an_end_that_was_begun_is_not_taken_back() -> None:
    """Even if the user raises the limit meanwhile."""
    begun = _ended(TrainerAccounting(failed=3), PODS, replace(JOB, backoff_limit=2))

    assert _types(_ended(TrainerAccounting(failed=3), [], replace(JOB, status=begun))) == [
        "FailureTarget",
        "Failed",
    ]


def test_a_job_has_its_deadline() -> None:
    """It counts from startTime on."""
    assert _types(_ended(TrainerAccounting(), PODS, replace(JOB, deadline_s=101))) == []
    new = _ended(TrainerAccounting(), PODS, replace(JOB, deadline_s=100))

    assert new.conditions[0].reason == "DeadlineExceeded"


def test_a_job_without_a_start_has_no_deadline_yet() -> None:
    """The clock begins with the first look, whatever the deadline."""
    fresh = replace(JOB, status=JobStatus(), deadline_s=100)

    assert _types(_ended(TrainerAccounting(), PODS, fresh)) == []


MASTERED = replace(JOB, master=True)


def _told(
    report: MasterReport, pods: list[Pod], accounting: TrainerAccounting | None = None
) -> list[str]:
    """Reasons of the conditions that are true after a master's report."""
    new = status.status(
        MASTERED, pods, accounting or TrainerAccounting(), NOW_S, master_report=report
    )
    return [c.reason for c in new.conditions if c.status == "True"]


@pytest.mark.parametrize(("age_s", "ends"), [(0.0, False), (4.9, False), (5.0, True)])
def test_trainers_may_end_by_themselves_once_all_is_done(age_s: float, *, ends: bool) -> None:
    """They have five seconds from the master's report on."""
    assert bool(_told(MasterReport(ReportedState.DONE, NOW_S - age_s), PODS)) is ends


def test_done_with_nobody_left_is_complete_at_once() -> None:
    """There is nobody to wait for."""
    assert _told(MasterReport(ReportedState.DONE, NOW_S), []) == ["MasterSaysDone"] * 2


def test_what_a_master_gave_up_is_not_waited_for() -> None:
    """Its trainers work in vain."""
    assert _told(MasterReport(ReportedState.FAILED, NOW_S), PODS) == ["MasterSaysFailed"]


def test_trainers_that_succeed_end_no_job_whose_master_still_has_work() -> None:
    """Its report alone does; failures count as without a master."""
    working = MasterReport(ReportedState.WORK, NOW_S - 60)

    assert _told(working, [], TrainerAccounting(succeeded=2)) == []
    assert _told(working, [], TrainerAccounting(failed=7)) == ["BackoffLimitExceeded"] * 2


def _condition(kind: str, reason: str, message: str, *, holds: bool = True) -> JobCondition:
    return JobCondition(kind, "True" if holds else "False", reason, message, NOW_S)


SUSPENDED = _condition("Suspended", "JobSuspended", "Job suspended")


@pytest.mark.parametrize(
    ("owner", "accounting", "report", "end"),
    [
        (
            replace(JOB, backoff_limit=2),
            TrainerAccounting(failed=3),
            None,
            _condition(
                "FailureTarget",
                "BackoffLimitExceeded",
                "3 trainers failed, more than backoffLimit 2 allows",
            ),
        ),
        (
            replace(JOB, deadline_s=100),
            TrainerAccounting(),
            None,
            _condition(
                "FailureTarget",
                "DeadlineExceeded",
                "the job ran longer than activeDeadlineSeconds 100",
            ),
        ),
        (
            JOB,
            TrainerAccounting(succeeded=1),
            None,
            _condition(
                "SuccessCriteriaMet",
                "CompletionsReached",
                "one trainer succeeded and all others ended",
            ),
        ),
        (
            MASTERED,
            TrainerAccounting(),
            MasterReport(ReportedState.DONE, NOW_S),
            _condition(
                "SuccessCriteriaMet", "MasterSaysDone", "the master reported that all work is done"
            ),
        ),
        (
            MASTERED,
            TrainerAccounting(),
            MasterReport(ReportedState.FAILED, NOW_S, "disk full"),
            _condition(
                "FailureTarget", "MasterSaysFailed", "the master reported failure: disk full"
            ),
        ),
        (
            MASTERED,
            TrainerAccounting(),
            MasterReport(ReportedState.FAILED, NOW_S),
            _condition(
                "FailureTarget", "MasterSaysFailed", "the master reported failure: no reason given"
            ),
        ),
    ],
)
def test_an_end_says_why_in_both_its_conditions(
    owner: Job, accounting: TrainerAccounting, report: MasterReport | None, end: JobCondition
) -> None:
    """By the types of batch/v1, which `kubectl wait` and workflow engines look for."""
    new = status.status(owner, [], accounting, NOW_S, master_report=report)
    final = "Complete" if end.type == "SuccessCriteriaMet" else "Failed"

    assert new.conditions == (end, replace(end, type=final))
    assert new.completion_s == (NOW_S if final == "Complete" else 0.0)


def test_suspension_and_its_end_are_one_condition() -> None:
    """As the built-in controller writes it."""
    suspended = _ended(TrainerAccounting(), [], replace(JOB, suspended=True))
    resumed = _ended(TrainerAccounting(), [], replace(JOB, status=suspended))

    assert suspended.conditions == (SUSPENDED,)
    assert resumed.conditions == (
        _condition("Suspended", "JobResumed", "Job resumed", holds=False),
    )


def test_a_job_that_was_never_suspended_says_nothing_of_it() -> None:
    """Nor does one whose suspension ended long ago report it again."""
    resumed = _condition("Suspended", "JobResumed", "Job resumed", holds=False)
    after = replace(JOB, status=JobStatus(start_s=NOW_S - 100, conditions=(resumed,)))

    assert _ended(TrainerAccounting(), PODS).conditions == ()
    assert status.status(after, PODS, TrainerAccounting(), NOW_S + 60).conditions == (resumed,)


def test_other_conditions_stay() -> None:
    """Somebody else's, or those of before; the newest comes last."""
    other = _condition("Custom", "Because", "of it")
    new = _ended(
        TrainerAccounting(), [], replace(JOB, suspended=True, status=JobStatus(conditions=(other,)))
    )

    assert new.conditions == (other, SUSPENDED)


def test_a_condition_that_does_not_hold_ends_nothing() -> None:
    """FailureTarget of status False does not start an end."""
    not_so = _condition("FailureTarget", "X", "x", holds=False)
    new = _ended(TrainerAccounting(), PODS, replace(JOB, status=JobStatus(conditions=(not_so,))))

    assert _types(new) == []


def test_suspension_stops_the_clock() -> None:
    """A suspended job has no startTime, and so no deadline."""
    new = _ended(TrainerAccounting(), [], replace(JOB, suspended=True, deadline_s=1))

    assert _types(new) == ["Suspended"]
    assert new.start_s == 0.0


def test_an_end_in_the_moment_of_suspension_keeps_the_start() -> None:
    """The end counts, and its time to the deadline no longer does."""
    new = _ended(TrainerAccounting(succeeded=1), [], replace(JOB, suspended=True, deadline_s=1))

    assert _types(new) == ["SuccessCriteriaMet", "Complete"]
    assert new.start_s == NOW_S - 100


def test_a_job_that_ends_while_suspended_has_a_start() -> None:
    """The API server refuses a finished Job without one."""
    suspended = _ended(TrainerAccounting(), [], replace(JOB, suspended=True))
    new = _ended(TrainerAccounting(failed=9), [], replace(JOB, suspended=True, status=suspended))

    assert _types(new) == ["Suspended", "FailureTarget", "Failed"]
    assert new.start_s == NOW_S


def test_resuming_starts_the_clock_anew() -> None:
    """And reports it in the same condition."""
    suspended = _ended(TrainerAccounting(), [], replace(JOB, suspended=True))
    resumed = _ended(TrainerAccounting(), [], replace(JOB, status=suspended))

    assert resumed.start_s == NOW_S
    assert [(c.type, c.status, c.reason) for c in resumed.conditions] == [
        ("Suspended", "False", "JobResumed")
    ]


def test_a_condition_keeps_its_time() -> None:
    """Looking again does not make it newer, so nothing is written for it."""
    suspended = replace(JOB, suspended=True)
    first = _ended(TrainerAccounting(), [], suspended)

    assert (
        status.status(replace(suspended, status=first), [], TrainerAccounting(), NOW_S + 60)
        == first
    )


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
def test_a_finished_job_gets_no_more_conditions(kind: str) -> None:
    """The API server would refuse them."""
    over = replace(JOB, status=JobStatus(conditions=(JobCondition(kind, "True"),)))

    assert len(_ended(TrainerAccounting(failed=99), [], over).conditions) == 1


def test_a_job_that_cannot_be_elastic_is_only_counted() -> None:
    """It is reported in an event; nothing is begun or ended for it."""
    broken = replace(JOB, error="min is missing", status=JobStatus())

    assert _ended(TrainerAccounting(failed=99), PODS, broken) == JobStatus(
        active=3, ready=2, failed=99
    )


def test_a_patch_is_read_back_as_the_same_status() -> None:
    """Times are whole seconds, as metav1.Time has them."""
    new = _ended(TrainerAccounting(succeeded=1), [])
    body = status.patch(new)

    assert decode._job_status(body["status"]) == new  # noqa: SLF001 - the exact counterpart
    assert body["status"]["completionTime"] == "1970-01-02T03:46:40Z"


def test_a_patch_takes_the_start_away_and_never_the_end() -> None:
    """Null removes startTime; completionTime must not appear before Complete."""
    body = status.patch(JobStatus())["status"]

    assert body["startTime"] is None
    assert "completionTime" not in body


def test_a_wait_is_told_again_when_nodes_begin_to_be_held() -> None:
    """Other figures alone are no news; since when the job waits stays."""

    def waiting(conditions: tuple[JobCondition, ...], now_s: float, **figures: str) -> JobCondition:
        owner = replace(JOB, status=JobStatus(conditions=conditions))
        needs: dict[str, Figure] = {"missing": 2, "needs": "5 cpu", **figures}
        job_plan = JobPlan(JOB.key, 0, 0, Reason.WAITING_FOR_ROOM, needs, 0.0)
        return status.waiting(owner, job_plan, now_s) or conditions[0]

    told = waiting((), NOW_S, held_from="12:00:00")
    held = waiting((told,), NOW_S + 2, until="12:09:00")

    assert waiting((told,), NOW_S + 1, held_from="12:00:09") is told
    assert held.message.endswith("nodes are held until 12:09:00")
    assert held.time_s == NOW_S
    assert waiting((held,), NOW_S + 3, until="12:10:00") is held
