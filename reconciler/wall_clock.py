"""Notices that the wall clock was set back while the process ran.

Pauses, cool-downs and times of checks are kept as times of the wall clock, so each would last longer by
what it was set back: nodes would take no trainer and statuses would not be written for an hour. All of it
is in memory, so the process is restarted, which loses nothing but waiting time.
"""

import logging
from collections.abc import Callable

from runtime.logs import keys

log = logging.getLogger(__name__)

TOLERANCE_S = 60.0
"""What a pause may last longer. Time services correct less than a second by letting the clock run slower."""


class WallClock:
    """Compares the wall clock with one that is never set. Used on any thread."""

    def __init__(self, epoch_s: Callable[[], float], monotonic_s: Callable[[], float]) -> None:
        """Takes both clocks as right.

        Args:
            epoch_s: The wall clock, in seconds since the epoch.
            monotonic_s: A clock that is never set back.
        """
        self._epoch_s = epoch_s
        self._monotonic_s = monotonic_s
        self._most_ahead_s = epoch_s() - monotonic_s()
        self._was_set_back = False

    @property
    def was_set_back(self) -> bool:
        """Whether it was set back so far that the process must be restarted; logs that once."""
        ahead_s = self._epoch_s() - self._monotonic_s()
        self._most_ahead_s = max(self._most_ahead_s, ahead_s)
        back_s = self._most_ahead_s - ahead_s
        if back_s > TOLERANCE_S and not self._was_set_back:
            self._was_set_back = True
            log.error("the clock was set back: restart this process", extra=keys(back_s=back_s))
        return self._was_set_back
