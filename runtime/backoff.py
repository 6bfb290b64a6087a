"""Back-off for loops, and for many objects by key; `policy.backoff` computes the pauses. Pure."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from policy.backoff import pause_s

FIRST_S = 0.5
MAX_S = 30.0

Key = TypeVar("Key")


class Backoff:
    """The pauses between the tries of one operation. Not thread-safe."""

    def __init__(
        self,
        first_s: float = FIRST_S,
        max_s: float = MAX_S,
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """Starts with the first pause.

        Args:
            first_s: The first pause, in seconds.
            max_s: The longest pause.
            jitter: Returns the factor of each pause. With `Random.random` (full jitter), replicas
                that lost the same API server do not reconnect at the same time.
        """
        self._first_s = first_s
        self._max_s = max_s
        self._jitter = jitter
        self._failures = 0

    def next_s(self) -> float:
        """Counts a failed try; returns the seconds to wait before the next one."""
        self._failures += 1
        return pause_s(self._first_s, self._max_s, self._failures) * self._jitter()

    def reset(self) -> None:
        """Starts again from the first pause; call it after a try that succeeded."""
        self._failures = 0


class Backoffs(Generic[Key]):
    """The back-offs of several objects, by key; iterates over the keys."""

    def __init__(self, first_s: float, max_s: float, calm_s: float) -> None:
        """Starts without back-offs.

        Args:
            first_s: The first pause of an object, in seconds.
            max_s: The longest pause.
            calm_s: An object whose pause ended longer ago than this starts with `first_s` again.
        """
        self._first_s = first_s
        self._max_s = max_s
        self._calm_s = calm_s
        self._backoffs: dict[Key, tuple[float, Backoff]] = {}
        """Key -> (end of its pause, its back-off)."""
        self._swept_s = float("-inf")
        """When the expired back-offs were last removed."""

    def __iter__(self) -> Iterator[Key]:
        return iter(self._backoffs)

    def is_waiting(self, key: Key, now_s: float) -> bool:
        """Returns whether an object is still in its pause."""
        return key in self._backoffs and now_s < self._backoffs[key][0]

    def begin(self, key: Key, now_s: float) -> float:
        """Begins the next pause of an object; removes expired back-offs of other objects.

        Returns:
            When the pause ends, on the clock of `now_s`.
        """
        if now_s - self._swept_s > self._calm_s:
            self._forget_calm(now_s)
        end_s, backoff = self._backoffs.get(key, (now_s, Backoff(self._first_s, self._max_s)))
        if now_s - end_s > self._calm_s:
            backoff.reset()
        end_s = now_s + backoff.next_s()
        self._backoffs[key] = (end_s, backoff)
        return end_s

    def end(self, key: Key) -> None:
        """Ends the back-off of an object that succeeded or was deleted."""
        self._backoffs.pop(key, None)

    def _forget_calm(self, now_s: float) -> None:
        """Removes expired back-offs, but not at each call: a failing API server causes thousands of back-offs."""
        self._swept_s = now_s
        for key in [k for k, (end_s, _) in self._backoffs.items() if now_s - end_s > self._calm_s]:
            del self._backoffs[key]
