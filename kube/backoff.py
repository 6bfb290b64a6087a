"""Waits between retries: exponential back-off with full jitter."""

from random import Random

FIRST_S = 0.5
LONGEST_S = 30.0


class Backoff:
    """An exponential back-off: waits are drawn from 0 to a bound that doubles up to LONGEST_S.

    Full jitter, so that replicas that lost the same API server do not reconnect at the same time.
    """

    def __init__(
        self, random: Random, *, first_s: float = FIRST_S, longest_s: float = LONGEST_S
    ) -> None:
        self._random = random
        self._first_s = first_s
        self._longest_s = longest_s
        self._bound_s = first_s

    def next_s(self) -> float:
        """The next wait in seconds; doubles the bound for the one after."""
        wait_s = self._random.uniform(0.0, self._bound_s)
        self._bound_s = min(self._longest_s, 2 * self._bound_s)
        return wait_s

    def reset(self) -> None:
        """Starts again from the smallest bound, after a success."""
        self._bound_s = self._first_s
