"""Exponential back-off: the pause before each retry doubles up to a limit, with jitter."""

from __future__ import annotations

from collections.abc import Callable

from edl import clock

FIRST_S = 0.05
MAX_S = 2.0
"""A new master should serve within 3 s, so trainers must not sleep much longer between retries."""
_MAX_DOUBLINGS = 16


class Backoff:
    """The pauses of one sequence of tries; not thread-safe."""

    def __init__(
        self,
        first_s: float = FIRST_S,
        max_s: float = MAX_S,
        jitter: Callable[[], float] = clock.jitter,
    ) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._jitter = jitter
        self.tries = 0
        """Number of consecutive failed tries."""

    def next_s(self) -> float:
        """Returns the seconds to wait after one more failed try."""
        doublings = min(self.tries, _MAX_DOUBLINGS)
        self.tries += 1
        return min(self._max_s, self._first_s * 2.0**doublings) * self._jitter()

    def reset(self) -> None:
        """Starts again from the first pause, after a try that succeeded."""
        self.tries = 0
