"""How long to wait before trying again: exponential, with full jitter."""

from random import Random

FIRST_S = 0.5
LONGEST_S = 30.0


class Backoff:
    """Waits drawn from 0 to a bound that doubles up to LONGEST_S, until `reset`.

    Full jitter, so that replicas that lost the same API server do not come back together.
    """

    def __init__(self, random: Random, *, first_s: float = FIRST_S, longest_s: float = LONGEST_S):
        self._random = random
        self._first_s = first_s
        self._longest_s = longest_s
        self._bound_s = first_s

    def next_s(self) -> float:
        """The next wait in seconds; the one after may be twice as long."""
        wait_s = self._random.uniform(0.0, self._bound_s)
        self._bound_s = min(self._longest_s, 2 * self._bound_s)
        return wait_s

    def reset(self) -> None:
        """Things are well again: start small the next time."""
        self._bound_s = self._first_s
