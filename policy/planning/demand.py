"""How often a job has changed its demand, and how many trainers other jobs have given for it. Pure.

A move, and a minimum that starts, end trainers of other jobs at once. A job that lowers and raises its
demand in turn would end them again and again. So from its second change within an hour, a job takes from
others only as many trainers as it has given up, and a few more. For the rest it waits for free capacity,
or until the hour is over (docs/decisions/0071).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from policy.cluster.snapshot import Job

WINDOW_S = 3600.0
_PERIOD_S = 600.0
"""Length of a period: counts are forgotten one period at a time."""
_FREE_CHANGES = 1
"""Changes within the window that cost the job nothing."""
_FEW = 4
"""Trainers that a job may take within the window beyond those it has given up."""


class Demand(NamedTuple):
    """What a job asks for: all settings of its user that its number of trainers depends on."""

    weight: int
    queue: str
    min_trainers: int
    max_trainers: int
    sizes: tuple[int, ...]
    suspended: bool


@dataclass(frozen=True, slots=True)
class Period:
    """Counts of ten minutes of a job; times are seconds since the epoch."""

    since_s: float
    changes: int = 0
    """Changes of its demand."""
    failures: int = 0
    """Plans that found new failures of its trainers: a user can give trainers up by letting them fail."""
    gains: int = 0
    """Trainers that the job got at the expense of other jobs."""
    fewest: int = 0
    """Smallest number of its trainers."""
    most: int = 0
    """Largest number of its trainers."""

    @property
    def forgotten_s(self) -> float:
        """When the period stops counting: its end is then one window old."""
        return self.since_s + _PERIOD_S + WINDOW_S


@dataclass(frozen=True, slots=True)
class DemandHistory:
    """The demand of a job, and the periods since it changed, if that was recently."""

    demand: Demand
    last_failure_s: float
    """`TrainerAccounting.last_failure_s` of the job."""
    periods: tuple[Period, ...] = ()
    """In order of time, the current one last; empty once none of them counts any more."""

    @property
    def changes(self) -> int:
        """Number of changes of its demand."""
        return sum(period.changes for period in self.periods)

    @property
    def failures(self) -> int:
        """Number of plans that found new failures of its trainers."""
        return sum(period.failures for period in self.periods)

    @property
    def gains(self) -> int:
        """Trainers that the job got at the expense of other jobs."""
        return sum(period.gains for period in self.periods)

    @property
    def until_s(self) -> float:
        """When none of the trainers that it has taken so far counts any more; seconds since the epoch."""
        return max((period.forgotten_s for period in self.periods if period.gains), default=0.0)

    def allows(self, count: int, trainers: int, *, minimum: bool) -> bool:
        """Returns whether other jobs give trainers for it.

        The range of its size within the window is the largest number of trainers that it may have given
        up; a job that only grows takes no more than that.

        Args:
            count: Number of trainers that it would take, including those taken by this plan.
            trainers: Number of trainers that it would have then.
            minimum: Whether they belong to its minimum, which comes back however often trainers fail.
        """
        changes = self.changes + (0 if minimum else self.failures)
        if changes <= _FREE_CHANGES:
            return True
        most = max(trainers, *(period.most for period in self.periods))
        fewest = min(period.fewest for period in self.periods)
        return self.gains + count <= most - fewest + _FEW

    def after(self, gains: int) -> "DemandHistory":
        """Returns the history after a plan that took trainers of other jobs for it; without periods they do not count."""
        if not (gains and self.periods):
            return self
        *earlier, current = self.periods
        current = replace(current, gains=current.gains + gains)
        return replace(self, periods=(*earlier, current))


def observe(before: DemandHistory | None, job: Job, trainers: int, now_s: float) -> DemandHistory:
    """Returns the history of a job before a plan.

    Args:
        before: The history after the last plan; None for a new job.
        job: The job as it is now.
        trainers: Number of its live trainers.
        now_s: Seconds since the epoch.
    """
    demand = of(job)
    failed_s = job.accounting.last_failure_s
    if before is None:
        return DemandHistory(demand, failed_s)
    is_changed, has_failed = before.demand != demand, before.last_failure_s != failed_s
    if not (is_changed or has_failed or before.periods):
        return before
    periods = [period for period in before.periods if period.since_s <= now_s < period.forgotten_s]
    if not periods or now_s >= periods[-1].since_s + _PERIOD_S:
        periods.append(Period(now_s, fewest=trainers, most=trainers))
    current = periods[-1]
    periods[-1] = replace(
        current,
        changes=current.changes + is_changed,
        failures=current.failures + has_failed,
        fewest=min(current.fewest, trainers),
        most=max(current.most, trainers),
    )
    counts = any(period.changes or period.failures or period.gains for period in periods)
    return DemandHistory(demand, failed_s, tuple(periods) if counts else ())


def of(job: Job) -> Demand:
    """Returns the demand of a job now."""
    return Demand(
        job.weight, job.queue, job.min_trainers, job.max_trainers, job.sizes, job.suspended
    )
