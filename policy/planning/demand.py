"""How often a job has changed what it asks for, and what other jobs have given for it meanwhile. Pure.

A move, and a minimum that starts, end trainers of other jobs at once. A job that asks for less and for more in
turn would have them end again and again. So from its second change within an hour on, a job takes from
others once what it has given up, and a few more; for the rest it waits for capacity that is free, or until
the hour is over (docs/decisions/0071).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from policy.cluster.snapshot import Job

WINDOW_S = 3600.0
_PERIOD_S = 600.0
"""What is counted is forgotten by parts of the window."""
_FREE_CHANGES = 1
"""Changes within the window that other jobs follow whatever they give for them."""
_FEW = 4
"""Trainers that a job takes within the window besides."""


class Demand(NamedTuple):
    """What a job asks for: all that its user may change and its number of trainers depends on."""

    weight: int
    queue: str
    min_trainers: int
    max_trainers: int
    sizes: tuple[int, ...]
    suspended: bool


@dataclass(frozen=True, slots=True)
class Period:
    """Some minutes of a job; times are seconds since the epoch."""

    since_s: float
    changes: int = 0
    """Of what it asks for."""
    failures: int = 0
    """Plans before which trainers of it had failed: whoever wants to give trainers up lets them fail."""
    gains: int = 0
    """Trainers that it got at the expense of other jobs."""
    fewest: int = 0
    """The smallest number of its trainers."""
    most: int = 0
    """The largest one."""

    @property
    def forgotten_s(self) -> float:
        """When it does not count any more: when its end is as old as the window is long."""
        return self.since_s + _PERIOD_S + WINDOW_S


@dataclass(frozen=True, slots=True)
class DemandHistory:
    """What a job asks for, and the periods since it last was something else, if that was lately."""

    demand: Demand
    last_failure_s: float
    """As in the job's accounting."""
    periods: tuple[Period, ...] = ()
    """In order of time, the current one last; empty where nothing of them counts any more."""

    @property
    def changes(self) -> int:
        """How often it changed what it asks for."""
        return sum(period.changes for period in self.periods)

    @property
    def failures(self) -> int:
        """How often trainers of it have failed."""
        return sum(period.failures for period in self.periods)

    @property
    def gains(self) -> int:
        """Trainers that it got at the expense of other jobs."""
        return sum(period.gains for period in self.periods)

    @property
    def until_s(self) -> float:
        """When nothing that it has taken until now counts any more; seconds since the epoch."""
        return max((period.forgotten_s for period in self.periods if period.gains), default=0.0)

    def allows(self, count: int, trainers: int, *, minimum: bool) -> bool:
        """Whether other jobs give trainers for it.

        What its size has ranged over within the window is what it may have given up; a job that only
        grows takes no more than that.

        Args:
            count: Number of trainers that it would take, with those that this plan has taken for it.
            trainers: Number of trainers that it would have then.
            minimum: Whether they are of its minimum: that comes back however often trainers fail.
        """
        changes = self.changes + (0 if minimum else self.failures)
        if changes <= _FREE_CHANGES:
            return True
        most = max(trainers, *(period.most for period in self.periods))
        fewest = min(period.fewest for period in self.periods)
        return self.gains + count <= most - fewest + _FEW

    def after(self, gains: int) -> "DemandHistory":
        """The same after a plan that took trainers of other jobs for it; without periods they do not count."""
        if not (gains and self.periods):
            return self
        *earlier, current = self.periods
        current = replace(current, gains=current.gains + gains)
        return replace(self, periods=(*earlier, current))


def observe(before: DemandHistory | None, job: Job, trainers: int, now_s: float) -> DemandHistory:
    """The history of a job before a plan.

    Args:
        before: As the last plan left it; None where there was none.
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
    """What a job asks for now."""
    return Demand(
        job.weight, job.queue, job.min_trainers, job.max_trainers, job.sizes, job.suspended
    )
