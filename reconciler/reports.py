"""Which of a plan's words become records and events. Pure; `loop` keeps, `events` writes them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from policy.decisions import Decision, Figure, Figures
from policy.names import Tier
from policy.planning import JobPlan, Plan, Release
from policy.reasons import Reason
from policy.snapshot import Job
from reconciler.events import Event
from reconciler.trainers import Outcome

_WORTH_A_WARNING = {
    Reason.WAITING_FOR_ROOM: "wait until capacity is free, or lower min-trainers",
    Reason.FITS_NO_NODE: "lower the trainers' requests, or widen their node selector",
    Reason.QUOTA_REACHED: "raise the quota in the policy, or lower min-trainers",
    Reason.BACKING_OFF: "see the logs of the failed trainers",
}


def of_job(wanted: JobPlan, more: Figures, now_s: float) -> Decision:
    """How many trainers a job is to have, and why not more.

    Args:
        wanted: As planned.
        more: Figures that the plan did not have at hand.
        now_s: Seconds since the epoch.
    """
    figures = {"live": wanted.live, "target": wanted.target, **wanted.figures, **more}
    return Decision(f"job {wanted.key}", wanted.reason, figures, now_s)


def of_release(release: Release, now_s: float) -> Decision:
    """Why a trainer was let go."""
    about = f"pod {release.namespace}/{release.pod}"
    return Decision(about, release.reason, {**release.figures, "node": release.node}, now_s)


def of_refusal(outcome: Outcome, now_s: float) -> Decision:
    """Why trainers that were planned could not be made."""
    figures: dict[str, Figure] = {
        "error": outcome.error,
        "made": outcome.made,
        "tier": str(outcome.tier),
    }
    return Decision(f"job {outcome.job.key}", Reason.REFUSED, figures, now_s)


def as_far_as_done(made: Plan, refused: Mapping[str, Decision]) -> Plan:
    """The plan without the guaranteed trainers that the API server would not take.

    Args:
        made: What was planned.
        refused: Job key -> why its newest were not taken.
    """
    asked = {create.job for create in made.creates if create.tier is Tier.GUARANTEED}
    stuck = asked & refused.keys()
    if not stuck:
        return made
    jobs = (
        replace(w, target=w.live, reason=Reason.REFUSED, figures=refused[w.key].figures)
        if w.key in stuck
        else w
        for w in made.jobs
    )
    return replace(made, jobs=tuple(jobs))


def of_outcome(outcome: Outcome) -> Event | None:
    """What to tell of trainers that were made, or could not be."""
    if outcome.made:
        text = f"made {outcome.made} {outcome.tier} trainers"
        return Event(outcome.job, "TrainersMade", text)
    if outcome.error:
        return Event(outcome.job, "TrainersRefused", outcome.error, warning=True)
    return None


def of_releases(went: Iterable[Release], jobs: Mapping[str, Job]) -> list[Event]:
    """One event for each job and reason, with the trainers by name."""
    by: dict[tuple[str, Reason], list[Release]] = {}
    for release in went:
        by.setdefault((release.job, release.reason), []).append(release)
    events = []
    for (key, reason), releases in by.items():
        if key in jobs:
            names = ", ".join(release.pod for release in releases[:5])
            more = f" and {len(releases) - 5} more" if len(releases) > 5 else ""  # noqa: PLR2004 - names that fit a line
            text = f"released {names}{more}: {reason} ({releases[0].detail})"
            events.append(Event(jobs[key], "TrainersReleased", text))
    return events


def of_changes(plan: Plan, before: Mapping[str, Reason], jobs: Mapping[str, Job]) -> list[Event]:
    """Warnings for jobs that just began to be wrong or to have less than their minimum."""
    return [
        Event(jobs[wanted.key], str(wanted.reason), _text(wanted, jobs[wanted.key]), warning=True)
        for wanted in plan.jobs
        if wanted.key in jobs and _worth_telling(wanted, before, jobs[wanted.key])
    ]


def _text(wanted: JobPlan, job: Job) -> str:
    """What is the matter, and what helps; what is wrong with a Job says that itself."""
    if wanted.reason is Reason.INVALID:
        help_ = "correct that, or where it cannot be changed, create it again"
        return f"left with {wanted.target} trainers: {wanted.detail}; {help_}"
    least = f"{wanted.target} of at least {job.min_trainers} trainers"
    return f"{least}: {wanted.detail}; {_WORTH_A_WARNING[wanted.reason]}"


def _worth_telling(wanted: JobPlan, before: Mapping[str, Reason], job: Job) -> bool:
    if before.get(wanted.key) == wanted.reason:
        return False
    short = wanted.target < max(1, job.min_trainers)
    return wanted.reason is Reason.INVALID or (short and wanted.reason in _WORTH_A_WARNING)
