"""Describes plans and their results as decision records and events."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from policy.cluster.snapshot import Job
from policy.decisions import Decision, Figure, Figures, time
from policy.names import Tier
from policy.planning.plan import JobPlan, Plan, Release
from policy.reasons import Reason
from reconciler.records.events import Event
from reconciler.trainers.controller import CreationResult

_REMEDIES = {
    Reason.WAITING_FOR_ROOM: "wait until capacity is free, or lower min-trainers",
    Reason.FITS_NO_NODE: "lower the trainers' requests, or widen their node selector",
    Reason.QUEUED: "wait, or change `admission` in the policy",
    Reason.NODES_REQUESTED: "if no nodes are added, see the events of its pods and the autoscaler's log",
    Reason.QUOTA_REACHED: "raise the quota in the policy, or lower min-trainers",
    Reason.CHANGED_OFTEN: "wait, and do not change the Job meanwhile",
    Reason.BACKING_OFF: "see the logs of the failed trainers",
    Reason.REFUSED: "correct what the API server names; the Job then starts by itself",
}
"""Reason that deserves a warning when a job has fewer trainers than its minimum -> the remedy."""
_ALWAYS_REPORTED = (Reason.INVALID, Reason.QUARANTINED, Reason.NODES_REQUESTED)
"""Reasons that get a warning regardless of the number of trainers."""
_MAX_NAMES = 5
"""Trainers named in one event, so that it fits on a line."""


def job_decision(job_plan: JobPlan, node_figures: Figures, now_s: float) -> Decision:
    """Describes how many trainers a job should have, and why it gets no more.

    Args:
        job_plan: The plan of the job.
        node_figures: Figures of the node that comes closest to fitting a trainer. The plan itself does not look
            them up.
        now_s: Seconds since the epoch.
    """
    figures = {"live": job_plan.live, "target": job_plan.target, **job_plan.figures, **node_figures}
    return Decision(f"job {job_plan.key}", job_plan.reason, figures, now_s)


def release_decision(release: Release, now_s: float) -> Decision:
    """Describes why a trainer was evicted."""
    about = f"pod {release.namespace}/{release.pod}"
    return Decision(about, release.reason, {**release.figures, "node": release.node}, now_s)


def refusal_decision(result: CreationResult, now_s: float) -> Decision:
    """Describes why planned trainers could not be created."""
    figures: dict[str, Figure] = {
        "error": result.error,
        "made": result.created,
        "tier": str(result.tier),
    }
    return Decision(f"job {result.job.key}", Reason.REFUSED, figures, now_s)


def avoidance_decisions(plan: Plan, now_s: float) -> Iterator[tuple[str, Decision]]:
    """Yields job key and decision for each node that a job avoids."""
    for key, nodes in plan.avoided.items():
        for node, until_s in nodes.items():
            yield (
                key,
                Decision(f"node {node}", Reason.NODE_AVOIDED, {"until": time(until_s)}, now_s),
            )


def avoidance_events(
    plan: Plan, before: Mapping[str, Collection[str]], jobs: Mapping[str, Job]
) -> list[Event]:
    """Returns warnings for jobs that avoid a node which they did not avoid in the previous plan.

    Args:
        plan: The newest plan.
        before: `Plan.avoided` of the previous plan.
        jobs: Job key -> job.
    """
    return [
        Event(jobs[key], str(decision.code), f"{decision.about}: {decision.text}", warning=True)
        for key, decision in avoidance_decisions(plan, 0.0)
        if key in jobs and decision.about.removeprefix("node ") not in before.get(key, ())
    ]


def as_executed(plan: Plan, results: Iterable[CreationResult]) -> Plan:
    """Returns the plan without the trainers that could not be created, and with the reasons of the failures.

    Args:
        plan: The newest plan.
        results: The results of the plan's creations.
    """
    failed = [result for result in results if result.error]
    if not failed:
        return plan
    planned = Counter[tuple[str, Tier]]()
    for create in plan.creates:
        planned[create.job, create.tier] += create.count
    missing = Counter[str]()
    error: dict[str, str] = {}
    for result in failed:
        key = result.job.key
        missing[key] += planned[key, result.tier] - result.created
        error.setdefault(key, result.error)
    jobs = (
        replace(
            job_plan,
            target=job_plan.target - missing[job_plan.key],
            reason=Reason.REFUSED,
            figures={"error": error[job_plan.key]},
        )
        if job_plan.key in error
        else job_plan
        for job_plan in plan.jobs
    )
    return replace(plan, jobs=tuple(jobs))


def creation_event(result: CreationResult) -> Event | None:
    """Returns the event about trainers that were created or refused, if any."""
    if result.created:
        text = f"Created {result.created} {result.tier} trainer{'' if result.created == 1 else 's'}"
        return Event(result.job, "TrainersMade", text)
    if result.error:
        return Event(result.job, "TrainersRefused", result.error, warning=True)
    return None


def release_events(evicted: Iterable[Release], jobs: Mapping[str, Job]) -> list[Event]:
    """Returns one event for each job and reason, with the names of the trainers."""
    groups: dict[tuple[str, Reason], list[Release]] = {}
    for release in evicted:
        groups.setdefault((release.job, release.reason), []).append(release)
    events = []
    for (key, reason), releases in groups.items():
        if key in jobs:
            names = ", ".join(release.pod for release in releases[:_MAX_NAMES])
            unnamed = len(releases) - _MAX_NAMES
            remainder = f" and {unnamed} more" if unnamed > 0 else ""
            text = f"Released {names}{remainder}: {reason} ({releases[0].detail_for_owner})"
            events.append(Event(jobs[key], "TrainersReleased", text))
    return events


def shortage_events(
    plan: Plan, before: Mapping[str, Reason], jobs: Mapping[str, Job]
) -> list[Event]:
    """Returns warnings for jobs that have just become invalid or fallen below their minimum."""
    return [
        Event(
            jobs[job_plan.key],
            str(job_plan.reason),
            _warning_text(job_plan, jobs[job_plan.key]),
            warning=True,
        )
        for job_plan in plan.jobs
        if job_plan.key in jobs and _needs_warning(job_plan, before, jobs[job_plan.key])
    ]


def _warning_text(job_plan: JobPlan, job: Job) -> str:
    """Returns the problem and its remedy; the detail of an invalid Job already names the remedy."""
    detail = job_plan.detail_for_owner
    if job_plan.reason is Reason.QUARANTINED:
        help_ = "see the reconciler's log; if you wrote the Job's annotations, correct them"
        return f"The Job keeps {job_plan.target} trainers: {detail}; {help_}"
    if job_plan.reason is Reason.INVALID:
        help_ = "correct the Job, or delete and create it again if the field cannot change"
        return f"The Job keeps {job_plan.target} trainers: {detail}; {help_}"
    if job_plan.reason is Reason.NODES_REQUESTED:
        return f"{detail}; {_REMEDIES[job_plan.reason]}"
    least = f"The Job has {job_plan.target} of at least {job.min_trainers} trainers"
    return f"{least}: {detail}; {_REMEDIES[job_plan.reason]}"


def _needs_warning(job_plan: JobPlan, before: Mapping[str, Reason], job: Job) -> bool:
    if before.get(job_plan.key) == job_plan.reason:
        return False
    short = job_plan.target < max(1, job.min_trainers)
    return job_plan.reason in _ALWAYS_REPORTED or (short and job_plan.reason in _REMEDIES)
