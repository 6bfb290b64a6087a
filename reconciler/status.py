"""The status of a Job as its pods and books say it, by the rules of batch/v1.

The API server checks a managed Job's status as strictly as the built-in controller's: the end
comes in two steps (SuccessCriteriaMet or FailureTarget first, Complete or Failed when no pod
is left), counts never fall, and completionTime comes with Complete alone.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from policy.planning import JobPlan
from policy.reasons import Reason
from policy.snapshot import Books, Job, JobCondition, JobStatus, Phase, Pod
from reconciler.words import State, Word

WAITING = "edl.training/Waiting"
"""Condition type: True while the plan cannot give a job its minimum, with the reason's code."""
LINGER_S = 5.0
"""How long trainers may take to end by themselves once their master says that all is done."""
_RESTS = (Reason.SUSPENDED, Reason.ENDING)
"""Reasons for which a job should have no trainers, so waits for none."""


def status(
    job: Job,
    pods: Iterable[Pod],
    books: Books,
    now_s: float,
    wanted: JobPlan | None = None,
    *,
    word: Word | None = None,
) -> JobStatus:
    """What the Job's status should be now.

    Args:
        job: The Job with the status it has.
        pods: All its trainer pods, ended ones included.
        books: Its settled books.
        now_s: Seconds since the epoch.
        wanted: What the newest plan says of it.
        word: The newest word of its master.
    """
    live = [pod for pod in pods if not pod.terminal]
    staying = [pod for pod in live if not pod.deleting]
    old = job.status
    new = replace(
        old,
        active=len(staying),
        ready=sum(1 for pod in staying if pod.ready and pod.phase is Phase.RUNNING),
        terminating=len(live) - len(staying),
        succeeded=max(old.succeeded, books.succeeded),
        failed=max(old.failed, books.failed),
    )
    condition = waiting(job, wanted, now_s)
    if condition is not None:
        new = _replaced(new, condition)
    if job.finished or job.error:
        return new
    new = _suspension(job, new, now_s)
    end = _wanted_end(job, new, now_s, word)
    if end is not None:
        new = _ended(new, end, done=not live, now_s=now_s)
    return new


def waiting(job: Job, wanted: JobPlan | None, now_s: float) -> JobCondition | None:
    """The condition that says why a job has less than its minimum; None where none changes.

    Figures alone change nothing: a condition is written when its status or its code changes.
    """
    old = next((c for c in job.status.conditions if c.type == WAITING), None)
    waited = old is not None and old.status == "True"
    if wanted is None or job.finished:
        return None
    code, text = str(wanted.reason), wanted.detail or str(wanted.reason)
    if _lacks(job, wanted):
        if old is not None and waited and old.reason == code:
            return None
        since_s = old.time_s if old is not None and waited else now_s
        return JobCondition(WAITING, "True", code, text, since_s)
    if not waited:
        return None
    if wanted.reason not in _RESTS:
        code, text = "Started", "it has its minimum"
    return JobCondition(WAITING, "False", code, text, now_s)


def _lacks(job: Job, wanted: JobPlan) -> bool:
    """Whether a job wants its minimum and does not get it; a Job that is wrong has none to get."""
    short = wanted.target < job.min_trainers and wanted.reason not in _RESTS
    return short or wanted.reason is Reason.INVALID


def _replaced(new: JobStatus, condition: JobCondition) -> JobStatus:
    others = tuple(c for c in new.conditions if c.type != condition.type)
    return replace(new, conditions=(*others, condition))


def _suspension(job: Job, new: JobStatus, now_s: float) -> JobStatus:
    """StartTime and the Suspended condition."""
    if job.suspended:
        suspended = JobCondition("Suspended", "True", "JobSuspended", "Job suspended", now_s)
        return replace(_with(new, suspended), start_s=0.0)
    if _holds(new, "Suspended"):
        resumed = JobCondition("Suspended", "False", "JobResumed", "Job resumed", now_s)
        new = _with(new, resumed)
    return replace(new, start_s=new.start_s or now_s)


def _wanted_end(job: Job, new: JobStatus, now_s: float, word: Word | None) -> JobCondition | None:
    """SuccessCriteriaMet or FailureTarget where the job is over, None while it goes on."""
    for condition in new.conditions:
        if condition.type in ("SuccessCriteriaMet", "FailureTarget") and condition.status == "True":
            return condition
    if job.master and word is not None and word.final:
        return _by_word(word, new, now_s)
    if new.succeeded and not job.master:
        return _by_success(new, now_s)
    if new.failed > job.backoff_limit:
        text = f"{new.failed} trainers failed, more than backoffLimit {job.backoff_limit} allows"
        return JobCondition("FailureTarget", "True", "BackoffLimitExceeded", text, now_s)
    if job.deadline_s and new.start_s and now_s - new.start_s >= job.deadline_s:
        text = f"the job ran longer than activeDeadlineSeconds {job.deadline_s}"
        return JobCondition("FailureTarget", "True", "DeadlineExceeded", text, now_s)
    return None


def _by_word(word: Word, new: JobStatus, now_s: float) -> JobCondition | None:
    """Where a master hands out the work, it alone knows when that is done.

    Trainers hear it too, and most end by themselves a moment later, with their logs kept.
    """
    if word.state is State.DONE:
        if new.active and now_s - word.at_s < LINGER_S:
            return None
        text = "the master says that all work is done"
        return JobCondition("SuccessCriteriaMet", "True", "MasterSaysDone", text, now_s)
    text = f"the master gave up: {word.reason or 'it gave no reason'}"
    return JobCondition("FailureTarget", "True", "MasterSaysFailed", text, now_s)


def _by_success(new: JobStatus, now_s: float) -> JobCondition | None:
    """Work-queue semantics of batch/v1 without completions.

    When one trainer has succeeded and the others have ended, the job is complete; a failure
    after a success changes nothing.
    """
    if new.active or new.terminating:
        return None
    text = "a trainer finished the work and every other has ended"
    return JobCondition("SuccessCriteriaMet", "True", "CompletionsReached", text, now_s)


def _ended(new: JobStatus, end: JobCondition, *, done: bool, now_s: float) -> JobStatus:
    new = _with(new, end)
    if not done:
        return new
    final = "Complete" if end.type == "SuccessCriteriaMet" else "Failed"
    new = _with(new, JobCondition(final, "True", end.reason, end.message, now_s))
    return replace(new, completion_s=now_s) if final == "Complete" else new


def _holds(new: JobStatus, kind: str) -> bool:
    return any(c.type == kind and c.status == "True" for c in new.conditions)


def _with(new: JobStatus, condition: JobCondition) -> JobStatus:
    """`new` with the condition in it; one that says the same already stays as it is."""
    for old in new.conditions:
        if old.type == condition.type and old.status == condition.status:
            return new
    return _replaced(new, condition)


def patch(new: JobStatus) -> dict[str, Any]:
    """A merge patch for the Job's status subresource."""
    body: dict[str, Any] = {
        "active": new.active,
        "ready": new.ready,
        "terminating": new.terminating,
        "succeeded": new.succeeded,
        "failed": new.failed,
        "startTime": _time(new.start_s) if new.start_s else None,
        "conditions": [
            {
                "type": c.type,
                "status": c.status,
                "reason": c.reason,
                "message": c.message,
                "lastProbeTime": _time(c.time_s),
                "lastTransitionTime": _time(c.time_s),
            }
            for c in new.conditions
        ],
    }
    if new.completion_s:
        body["completionTime"] = _time(new.completion_s)
    return {"status": body}


def _time(seconds: float) -> str:
    """RFC 3339, to the second, as metav1.Time is written."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
