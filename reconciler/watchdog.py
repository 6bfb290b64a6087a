"""Watches a loop of the reconciler: a leader whose ticks fail or hang gives the lease up.

The control loop has one, and the thread of TrainingJobs, whose ticks are its passes.

Patience grows with each time: where the standby fails on the same data, the two lead in turns of
12 s, 24 s, … up to some minutes. So there is always a leader, and changes become rare; a tick that
only takes long gets its time in the end (docs/decisions/0028). Pure but for its clock; used by the
loop, the pool's threads, the elector and the probes.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from runtime.logs import keys

log = logging.getLogger(__name__)

PATIENCE_S = 12.0
"""At first. More than a request may take, and with the elector's two seconds less than a lease lasts."""
MAX_PATIENCE_S = 384.0
REST_S = 5.0
"""How long the lease stays free for others: they look every two seconds."""
CALM_S = 600.0
"""Without trouble for this long, patience is as at first."""
DEAD_S = 120.0
"""A tick that hangs for this long may hang for ever: the process must be restarted."""


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """The health of the loop. Times are in seconds, 0 where there is no such trouble."""

    tick_age_s: float
    """Since the end of the last tick without an error, or the start."""
    stuck_s: float
    """How long the tick in progress has neither ended nor got an answer to a request."""
    failing_s: float
    """Since the first of the failed ticks in a row."""

    @property
    def trouble_s(self) -> float:
        """How long the loop has been of no use."""
        return max(self.stuck_s, self.failing_s)

    @property
    def alive(self) -> bool:
        """Whether the process may go on; otherwise it must be restarted."""
        return self.stuck_s < DEAD_S


class Watchdog:
    """A watchdog of the loop; it decides whether this process may lead."""

    def __init__(self, clock_s: Callable[[], float], name: str = "ticks") -> None:
        """Starts with a loop that waits; `clock_s` is a monotonic clock, `name` is for the log."""
        self._clock_s = clock_s
        self._name = name
        self._patience_s = PATIENCE_S
        self._succeeded_s = clock_s()
        self._progress_s: float | None = None
        """Time of the last progress in the tick in progress; None between ticks."""
        self._failing_since_s: float | None = None
        self._trouble_s = float("-inf")
        """When the lease was given up the last time."""
        self.given_up = {"failing": 0, "stuck": 0}
        """How often the lease was given up, by reason."""

    @property
    def health(self) -> LoopHealth:
        """How the loop fares now."""
        now_s, progress_s, failing_since_s = (
            self._clock_s(),
            self._progress_s,
            self._failing_since_s,
        )
        return LoopHealth(
            tick_age_s=now_s - self._succeeded_s,
            stuck_s=0.0 if progress_s is None else now_s - progress_s,
            failing_s=0.0 if failing_since_s is None else now_s - failing_since_s,
        )

    @property
    def is_healthy(self) -> bool:
        """Whether the loop has been of use within the patience at first."""
        return self.health.trouble_s < PATIENCE_S

    def begin(self) -> None:
        """A tick begins."""
        self._progress_s = self._clock_s()

    def progress(self) -> None:
        """A request of the tick in progress has ended."""
        if self._progress_s is not None:
            self._progress_s = self._clock_s()

    def end(self, *, failed: bool) -> None:
        """The tick has ended."""
        self._progress_s = None
        now_s = self._clock_s()
        if not failed:
            self._succeeded_s, self._failing_since_s = now_s, None
            if now_s - self._trouble_s > CALM_S:
                self._patience_s = PATIENCE_S
        elif self._failing_since_s is None:
            self._failing_since_s = now_s

    def may_lead(self, *, leads: bool) -> bool:
        """Whether this process may take or keep the lease; the elector asks before each attempt.

        Args:
            leads: Whether it leads now.
        """
        now_s, health = self._clock_s(), self.health
        if not leads:
            return now_s - self._trouble_s >= REST_S and health.stuck_s < PATIENCE_S
        if health.trouble_s < self._patience_s:
            return True
        reason = "stuck" if health.stuck_s >= self._patience_s else "failing"
        self.given_up[reason] += 1
        self._trouble_s = now_s
        self._patience_s = min(2 * self._patience_s, MAX_PATIENCE_S)
        log.error(
            "giving up the lease, so that another replica leads",
            extra=keys(
                loop=self._name,
                reason=reason,
                trouble_s=health.trouble_s,
                next_patience_s=self._patience_s,
            ),
        )
        return False
