"""Computes the status of a Job from its pods and its accounting, by the rules of batch/v1.

The API server validates the status of a managed Job as strictly as one that the built-in controller
writes. A Job ends in two steps: SuccessCriteriaMet or FailureTarget first, then Complete or Failed
once no pod is left. Counts never decrease, and completionTime is set only with Complete.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from policy.cluster.snapshot import Job, JobCondition, JobStatus, Phase, Pod, TrainerAccounting
from policy.explanations import NODES_HELD
from policy.planning.plan import JobPlan
from policy.reasons import Reason
from policy.timestamps import timestamp
from reconciler.masters.reports import MasterReport, ReportedState

WAITING = "edl.training/Waiting"
"""Condition type: True while the plan cannot give a job its minimum. The condition's reason is the code of the plan's
reason."""
LINGER_S = 5.0
"""How long trainers may keep running after their master has reported that all work is done."""
_ALWAYS_SHORT = (Reason.INVALID, Reason.QUARANTINED, Reason.NODES_REQUESTED)
"""Reasons that set the condition regardless of the number of trainers."""
NO_TRAINERS_WANTED = (Reason.SUSPENDED, Reason.ENDING)
"""Reasons for which a job should have no trainers, so it is not waiting for any."""


@dataclass(frozen=True, slots=True)
class _Failures:
    """Failures that can end a job, apart from the number of failed trainers."""

    restarts: int
    """Restarts of the containers of the job's live trainers."""
    fatal: str
    """Why a failure rule ends the job, or ""; see `TrainerAccounting.fatal`."""
    excused: int
    """Failures that do not count toward the job's limit; see `TrainerAccounting.excused`."""


def status(
    job: Job,
    pods: Iterable[Pod],
    accounting: TrainerAccounting,
    now_s: float,
    job_plan: JobPlan | None = None,
    *,
    master_report: MasterReport | None = None,
) -> JobStatus:
    """Returns the status that the Job should have now.

    Args:
        job: The Job with its current status.
        pods: All its trainer pods, including those that have ended.
        accounting: Its up-to-date trainer accounting.
        now_s: Seconds since the epoch.
        job_plan: Its part of the newest plan.
        master_report: The newest report of its master.
    """
    live = [pod for pod in pods if not pod.terminal]
    staying = [pod for pod in live if not pod.deleting]
    old = job.status
    # Totals never decrease, even if the accounting was lost, because the API server would refuse that.
    new = replace(
        old,
        active=len(staying),
        ready=sum(1 for pod in staying if pod.ready and pod.phase is Phase.RUNNING),
        terminating=len(live) - len(staying),
        succeeded=max(old.succeeded, accounting.succeeded),
        failed=max(old.failed, accounting.failed),
    )
    condition = waiting(job, job_plan, now_s)
    if condition is not None:
        new = _replace_condition(new, condition)
    if job.finished or job.error:
        return new
    if not job.suspended:
        new = _started(new, now_s)
    # A suspended job can still end, so its end is checked before it is marked as suspended.
    failures = _Failures(sum(pod.restarts for pod in live), accounting.fatal, accounting.excused)
    end = _end_condition(job, new, now_s, master_report, failures)
    if end is not None:
        return _ended(new, end, done=not live, now_s=now_s)
    return _suspended(new, now_s) if job.suspended else new


def waiting(job: Job, job_plan: JobPlan | None, now_s: float) -> JobCondition | None:
    """Returns the condition of a job below its minimum, with the reason, or None if it has not changed.

    New figures alone are not a change. The condition is written when its status or reason code changes,
    and when nodes start or stop being reserved for the job.
    """
    old = next((c for c in job.status.conditions if c.type == WAITING), None)
    waited = old is not None and old.status == "True"
    if job_plan is None or job.finished:
        return None
    code, text = str(job_plan.reason), job_plan.detail_for_owner or str(job_plan.reason)
    if _is_short(job, job_plan):
        if old is not None and waited and _says_the_same(old, code, text):
            return None
        since_s = old.time_s if old is not None and waited else now_s
        return JobCondition(WAITING, "True", code, text, since_s)
    if not waited:
        return None
    if job_plan.reason not in NO_TRAINERS_WANTED:
        code, text = "Started", "the job has its minimum"
    return JobCondition(WAITING, "False", code, text, now_s)


def _says_the_same(old: JobCondition, code: str, text: str) -> bool:
    """Returns whether a condition differs at most in its figures."""
    return old.reason == code and (NODES_HELD in old.message) == (NODES_HELD in text)


def _is_short(job: Job, job_plan: JobPlan) -> bool:
    """Returns whether a job should have its minimum but does not, or is excluded from planning."""
    short = job_plan.target < job.min_trainers and job_plan.reason not in NO_TRAINERS_WANTED
    return short or job_plan.reason in _ALWAYS_SHORT


def _replace_condition(new: JobStatus, condition: JobCondition) -> JobStatus:
    others = tuple(c for c in new.conditions if c.type != condition.type)
    return replace(new, conditions=(*others, condition))


def _suspended(new: JobStatus, now_s: float) -> JobStatus:
    """Returns `new` as suspended and not started, so that its deadline starts over when it resumes."""
    suspended = JobCondition("Suspended", "True", "JobSuspended", "Job suspended", now_s)
    return replace(_ensure_condition(new, suspended), start_s=0.0)


def _started(new: JobStatus, now_s: float) -> JobStatus:
    """Returns `new` with its start time, and resumed if it was suspended."""
    if _has_condition(new, "Suspended"):
        resumed = JobCondition("Suspended", "False", "JobResumed", "Job resumed", now_s)
        new = _ensure_condition(new, resumed)
    return replace(new, start_s=new.start_s or now_s)


def _end_condition(
    job: Job,
    new: JobStatus,
    now_s: float,
    master_report: MasterReport | None,
    failures: _Failures,
) -> JobCondition | None:
    """Returns SuccessCriteriaMet or FailureTarget for a job that has ended, or None while it runs.

    A suspended job ends for the same reasons, except for its deadline, as with the built-in
    controller.
    """
    for condition in new.conditions:
        if condition.type in ("SuccessCriteriaMet", "FailureTarget") and condition.status == "True":
            return condition
    if job.edl_master and master_report is not None and master_report.final:
        return _end_by_report(master_report, new, now_s)
    if failures.fatal:
        return JobCondition("FailureTarget", "True", "PodFailurePolicy", failures.fatal, now_s)
    if new.succeeded and not job.edl_master:
        return _end_by_success(new, now_s)
    return _end_by_failures(job, new, now_s, failures) or _end_by_deadline(job, new, now_s)


def _end_by_failures(
    job: Job, new: JobStatus, now_s: float, failures: _Failures
) -> JobCondition | None:
    """Returns the end of a job with too many failed trainers or container restarts, or None.

    Restarts count as in the built-in controller's `pastBackoffLimitOnFailure`.
    """
    text, restarts = "", failures.restarts
    failed = new.failed - failures.excused
    if failed > job.backoff_limit:
        text = f"{failed} trainers failed, more than backoffLimit {job.backoff_limit} allows"
    elif restarts >= max(1, job.backoff_limit):
        text = f"containers restarted {restarts} times; backoffLimit is {job.backoff_limit}"
    if not text:
        return None
    return JobCondition("FailureTarget", "True", "BackoffLimitExceeded", text, now_s)


def _end_by_deadline(job: Job, new: JobStatus, now_s: float) -> JobCondition | None:
    timed = job.deadline_s and new.start_s and not job.suspended
    if timed and now_s - new.start_s >= job.deadline_s:
        text = f"the job ran longer than activeDeadlineSeconds {job.deadline_s}"
        return JobCondition("FailureTarget", "True", "DeadlineExceeded", text, now_s)
    return None


def _end_by_report(
    master_report: MasterReport, new: JobStatus, now_s: float
) -> JobCondition | None:
    """Returns the end of a job whose master distributes the work: only the master's report decides.

    Trainers learn about the end from the master. Most of them soon exit by themselves, which keeps their logs.
    """
    if master_report.state is ReportedState.DONE:
        if new.active and now_s - master_report.at_s < LINGER_S:
            return None
        text = "the master reported that all work is done"
        return JobCondition("SuccessCriteriaMet", "True", "MasterSaysDone", text, now_s)
    text = f"the master reported failure: {master_report.reason or 'no reason given'}"
    return JobCondition("FailureTarget", "True", "MasterSaysFailed", text, now_s)


def _end_by_success(new: JobStatus, now_s: float) -> JobCondition | None:
    """Returns the end of a job without a master, by batch/v1's rules for work queues.

    The job is complete when one trainer has succeeded and all others have ended. A failure after a
    success changes nothing.
    """
    if new.active or new.terminating:
        return None
    text = "one trainer succeeded and all others ended"
    return JobCondition("SuccessCriteriaMet", "True", "CompletionsReached", text, now_s)


def _ended(new: JobStatus, end: JobCondition, *, done: bool, now_s: float) -> JobStatus:
    """Returns `new` as ended, with a startTime, which the API server requires of finished Jobs."""
    new = replace(_ensure_condition(new, end), start_s=new.start_s or now_s)
    if not done:
        return new
    final = "Complete" if end.type == "SuccessCriteriaMet" else "Failed"
    new = _ensure_condition(new, JobCondition(final, "True", end.reason, end.message, now_s))
    # Another replica may have set startTime by its own clock; the API server refuses an end before the start.
    completion_s = max(now_s, new.start_s)
    return replace(new, completion_s=completion_s) if final == "Complete" else new


def _has_condition(new: JobStatus, kind: str) -> bool:
    return any(c.type == kind and c.status == "True" for c in new.conditions)


def _ensure_condition(new: JobStatus, condition: JobCondition) -> JobStatus:
    """Returns `new` with the condition, unless it already has one of that type and status."""
    for old in new.conditions:
        if old.type == condition.type and old.status == condition.status:
            return new
    return _replace_condition(new, condition)


def patch(new: JobStatus) -> dict[str, Any]:
    """Returns a merge patch for the Job's status subresource."""
    body: dict[str, Any] = {
        "active": new.active,
        "ready": new.ready,
        "terminating": new.terminating,
        "succeeded": new.succeeded,
        "failed": new.failed,
        "startTime": timestamp(new.start_s) if new.start_s else None,
        "conditions": [
            {
                "type": c.type,
                "status": c.status,
                "reason": c.reason,
                "message": c.message,
                "lastProbeTime": timestamp(c.time_s),
                "lastTransitionTime": timestamp(c.time_s),
            }
            for c in new.conditions
        ],
    }
    if new.completion_s:
        body["completionTime"] = timestamp(new.completion_s)
    return {"status": body}
