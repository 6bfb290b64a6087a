"""One lock and one counter for everything that is watched together."""

import threading
from collections.abc import Callable


class Changes:
    """Counts changes and lets others wait for the next one.

    `condition` guards the records of all reflectors that share it: who holds it sees them
    between two changes, never half-way through one. It may be taken again by its holder.
    """

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self._version = 0
        self._closed = False

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    def bump(self) -> None:
        """Something changed; wakes all that wait."""
        with self.condition:
            self._version += 1
            self.condition.notify_all()

    def close(self) -> None:
        """No more changes will come; nobody waits any longer."""
        with self.condition:
            self._closed = True
            self.condition.notify_all()

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until `predicate` (called with the lock held) is true; False if it is not."""
        with self.condition:
            self.condition.wait_for(lambda: self._closed or predicate(), timeout_s)
            return predicate()

    def wait(self, after: int, timeout_s: float, gather_s: float = 0.0) -> int:
        """The version once it is above `after`, or as it is after `timeout_s`.

        Changes in between are seen as one. `gather_s` waits on after the first, so that a
        burst becomes one answer.
        """
        if self.wait_for(lambda: self._version > after, timeout_s) and gather_s > 0:
            self.wait_for(lambda: False, gather_s)
        return self._version
