"""The lock and the version counter that several reflectors share."""

import threading
from collections.abc import Callable


class Changes:
    """A version counter with a condition, so that threads can wait for the next change.

    `condition` guards the records of all reflectors that share it. A thread that holds it never sees a
    half-applied change. The lock is reentrant.
    """

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self._version = 0
        self._closed = threading.Event()

    @property
    def version(self) -> int:
        """A counter that increases with every change."""
        return self._version

    def bump(self) -> None:
        """Counts one change and wakes all waiting threads."""
        with self.condition:
            self._version += 1
            self.condition.notify_all()

    def close(self) -> None:
        """Ends all present and future waits, because no more changes will come."""
        with self.condition:
            self._closed.set()
            self.condition.notify_all()

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until `predicate` (called with the lock held) is true; returns False after a time-out."""
        with self.condition:
            self.condition.wait_for(lambda: self._closed.is_set() or predicate(), timeout_s)
            return predicate()

    def wait(self, after: int, timeout_s: float, gather_s: float = 0.0) -> int:
        """Waits for a version after `after`, at most `timeout_s`; returns the current version.

        Changes in between count as one. After the first change it waits another `gather_s`, so that a
        burst of changes ends only one wait.
        """
        if self.wait_for(lambda: self._version > after, timeout_s) and gather_s > 0:
            self.gather(gather_s)
        return self._version

    def gather(self, seconds: float) -> None:
        """Waits for the given time or until `close`, without waking up for each change."""
        self._closed.wait(seconds)
