"""Decides whether this process may lead, and whether it must be restarted.

A `Watchdog` watches a loop of the reconciler: a leader whose ticks fail or hang gives up the lease.
The control loop has a watchdog, and so has the thread of TrainingJobs, whose ticks are its passes.

Patience doubles each time the lease is given up. If the standby fails on the same data, the two lead in turns of
12 s, 24 s, and so on, up to some minutes. So there is always a leader, changes of leadership become rare, and a
tick that is merely slow eventually gets the time it needs (docs/decisions/0028). A watchdog is pure except for
its clock. The loop, the pool's threads, the elector and the probes use it.

A `WallClock` detects that the clock was set back.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from runtime.logs import keys

log = logging.getLogger(__name__)

PATIENCE_S = 12.0
"""Initial patience. It is longer than any request; with the elector's two seconds added, it is still shorter
than a lease."""
MAX_PATIENCE_S = 384.0
REST_S = 5.0
"""How long the lease stays free for other replicas, which try to acquire it every two seconds."""
CALM_S = 600.0
"""After this long without trouble, patience returns to its initial value."""
DEAD_S = 120.0
"""A tick that hangs for this long may never return, so the process must be restarted."""
CLOCK_TOLERANCE_S = 60.0
"""How far the clock may be set back, and pauses be extended, without a restart. Time services only correct
offsets below a second, by slowing the clock down."""


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """The health of a loop, as durations in seconds. `stuck_s` and `failing_s` are 0 for a healthy loop."""

    tick_age_s: float
    """Time since the end of the last successful tick, or since the start."""
    stuck_s: float
    """Time since the current tick started or last received a response; 0 between ticks."""
    failing_s: float
    """Time since the first of the consecutive failed ticks."""

    @property
    def trouble_s(self) -> float:
        """How long the loop has been stuck or failing, whichever is longer."""
        return max(self.stuck_s, self.failing_s)

    @property
    def alive(self) -> bool:
        """Whether the process may keep running; if not, it must be restarted."""
        return self.stuck_s < DEAD_S


class Watchdog:
    """Decides from the health of a loop whether this process may lead."""

    def __init__(self, clock_s: Callable[[], float], name: str = "ticks") -> None:
        """Initializes the watchdog of an idle loop; `clock_s` is a monotonic clock, `name` appears in logs."""
        self._clock_s = clock_s
        self._name = name
        self._patience_s = PATIENCE_S
        self._succeeded_s = clock_s()
        self._progress_s: float | None = None
        """Time of the last progress in the current tick; None between ticks."""
        self._failing_since_s: float | None = None
        self._trouble_s = float("-inf")
        """When the lease was last given up."""
        self.given_up = {"failing": 0, "stuck": 0}
        """How often the lease was given up, by reason."""

    @property
    def health(self) -> LoopHealth:
        """The present health of the loop."""
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
        """Whether the loop has made progress within the initial patience."""
        return self.health.trouble_s < PATIENCE_S

    def begin(self) -> None:
        """Records the start of a tick."""
        self._progress_s = self._clock_s()

    def progress(self) -> None:
        """Records that a request of the current tick has completed."""
        if self._progress_s is not None:
            self._progress_s = self._clock_s()

    def end(self, *, failed: bool) -> None:
        """Records the end of a tick."""
        self._progress_s = None
        now_s = self._clock_s()
        if not failed:
            self._succeeded_s, self._failing_since_s = now_s, None
            if now_s - self._trouble_s > CALM_S:
                self._patience_s = PATIENCE_S
        elif self._failing_since_s is None:
            self._failing_since_s = now_s

    def may_lead(self, *, leads: bool) -> bool:
        """Returns whether this process may take or keep the lease; the elector asks before each attempt.

        Args:
            leads: Whether this process is the leader at present.
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


class WallClock:
    """Detects that the wall clock was set back while the process was running. Safe on any thread.

    Pauses, cool-downs and due times are kept as wall-clock times. If the clock is set back by an hour, each
    of them lasts an hour longer: nodes would take no trainers and statuses would not be written. The process
    is therefore restarted. It keeps these times in memory only, so the restart ends all of these waits.
    """

    def __init__(self, epoch_s: Callable[[], float], monotonic_s: Callable[[], float]) -> None:
        """Initializes the comparison; assumes that the wall clock is correct now.

        Args:
            epoch_s: Returns the wall clock's seconds since the epoch.
            monotonic_s: Returns a monotonic clock's seconds.
        """
        self._epoch_s = epoch_s
        self._monotonic_s = monotonic_s
        self._most_ahead_s = epoch_s() - monotonic_s()
        self._was_set_back = False

    @property
    def was_set_back(self) -> bool:
        """Whether the clock was set back so far that the process must be restarted; logs this once."""
        ahead_s = self._epoch_s() - self._monotonic_s()
        self._most_ahead_s = max(self._most_ahead_s, ahead_s)
        back_s = self._most_ahead_s - ahead_s
        if back_s > CLOCK_TOLERANCE_S and not self._was_set_back:
            self._was_set_back = True
            log.error("the clock was set back: restart this process", extra=keys(back_s=back_s))
        return self._was_set_back
