"""How long to wait before the next try: doubles from try to try, up to a limit, with jitter."""

from __future__ import annotations

from collections.abc import Callable

from edl import clock

FIRST_S = 0.05
MOST_S = 2.0
"""A master is to be serving again within 3 s: trainers must not sleep through its return."""
_MOST_DOUBLINGS = 16


class Backoff:
    """Not thread-safe: each thread has its own."""

    def __init__(
        self,
        first_s: float = FIRST_S,
        most_s: float = MOST_S,
        jitter: Callable[[], float] = clock.jitter,
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._jitter = jitter
        self.tries = 0
        """In a row that failed."""

    def next_s(self) -> float:
        """Seconds to wait after one more try that failed."""
        doublings = min(self.tries, _MOST_DOUBLINGS)
        self.tries += 1
        return min(self._most_s, self._first_s * 2.0**doublings) * self._jitter()

    def reset(self) -> None:
        """A try worked."""
        self.tries = 0
