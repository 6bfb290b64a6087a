"""How often a job has changed its demand, and how many trainers it has taken from other jobs. Pure.

Other jobs lose trainers at once when trainers move to a job or when its minimum starts. A job that lowers
and raises its demand in turn would cost them trainers again and again. So from its second change within an
hour, a job takes from others only as many trainers as it has given up, and a few more. For further trainers
it waits for free capacity, or until the hour is over (docs/decisions/0071).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from policy.cluster.snapshot import Job

WINDOW_S = 3600.0
_PERIOD_S = 600.0
"""Length of a period; the history forgets whole periods."""
_FREE_CHANGES = 1
"""Number of changes within the window that have no consequences for the job."""
_FEW = 4
"""Number of trainers that a job may take within the window beyond those that it has given up."""


class Demand(NamedTuple):
    """A job's demand: all settings of its user that influence its number of trainers."""

    weight: int
    queue: str
    min_trainers: int
    max_trainers: int
    sizes: tuple[int, ...]
    suspended: bool


@dataclass(frozen=True, slots=True)
class Period:
    """Counts of a job within one period of ten minutes; times are seconds since the epoch."""

    since_s: float
    changes: int = 0
    """Number of changes of the job's demand."""
    failures: int = 0
    """Number of plans that found new failures of its trainers: users can give up trainers that way."""
    gains: int = 0
    """Number of trainers that the job got at the expense of other jobs."""
    fewest: int = 0
    """Smallest number of its trainers."""
    most: int = 0
    """Largest number of its trainers."""

    @property
    def forgotten_s(self) -> float:
        """When the period stops counting: one window after its end."""
        return self.since_s + _PERIOD_S + WINDOW_S


@dataclass(frozen=True, slots=True)
class DemandHistory:
    """A job's demand, and the counted periods since the demand changed or trainers failed."""

    demand: Demand
    last_failure_s: float
    """`TrainerAccounting.last_failure_s` of the job."""
    periods: tuple[Period, ...] = ()
    """The periods in order of time, the current one last; empty if nothing happened in any of them."""

    @property
    def changes(self) -> int:
        """Number of changes of the job's demand in all periods."""
        return sum(period.changes for period in self.periods)

    @property
    def failures(self) -> int:
        """Number of plans in all periods that found new failures of its trainers."""
        return sum(period.failures for period in self.periods)

    @property
    def gains(self) -> int:
        """Number of trainers that the job got at the expense of other jobs in all periods."""
        return sum(period.gains for period in self.periods)

    @property
    def until_s(self) -> float:
        """When the last trainer taken from other jobs stops counting, in seconds since the epoch."""
        return max((period.forgotten_s for period in self.periods if period.gains), default=0.0)

    def allows(self, count: int, trainers: int, *, minimum: bool) -> bool:
        """Returns whether the job may take trainers from other jobs.

        The job cannot have given up more trainers than the difference of its largest and its smallest
        size within the window; a job that only grows does not take more than this difference either.

        Args:
            count: Number of trainers that the job would take, including those taken by this plan.
            trainers: Number of trainers that the job would then have.
            minimum: Whether these trainers belong to its minimum, which is restored however often
                trainers fail.
        """
        changes = self.changes + (0 if minimum else self.failures)
        if changes <= _FREE_CHANGES:
            return True
        most = max(trainers, *(period.most for period in self.periods))
        fewest = min(period.fewest for period in self.periods)
        return self.gains + count <= most - fewest + _FEW

    def after(self, gains: int) -> "DemandHistory":
        """Returns the history after a plan in which the job took `gains` trainers from other jobs.

        They count only if the history has a period.
        """
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
    """Returns a job's current demand."""
    return Demand(
        job.weight, job.queue, job.min_trainers, job.max_trainers, job.sizes, job.suspended
    )
