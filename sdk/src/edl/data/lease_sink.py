"""What a work fetcher fills: the state that the queues of leased tasks have in common. Pure."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from edl.errors import EdlError
from edl.master.protocol import Lease

MAX_LEASES_WANTED = 64
"""Most tasks leased in one call."""


class LeaseSink(ABC):
    """A queue that receives leases; thread-safe."""

    def __init__(self, task_records: int) -> None:
        """Starts empty.

        Args:
            task_records: Records of a whole task.
        """
        self._task_records = task_records
        self.lock = threading.Lock()
        self.call_due = threading.Condition(self.lock)
        """Wakes the fetcher: more leases are wanted, or there is something to report."""
        self._leases_changed = threading.Condition(self.lock)
        """Wakes the thread that takes leases: there are more, or no more will come."""
        self._exhausted = False
        """Whether no more leases come soon: what needs several tasks then takes what is here."""
        self._done = False
        """Whether the master reported that no work is left."""
        self.closing = False
        self._error: EdlError | None = None

    @abstractmethod
    def leases_wanted(self) -> int:
        """Returns how many tasks to lease now; needs the lock."""

    def add_leases(self, leases: tuple[Lease, ...]) -> None:
        """Adds leased tasks."""
        with self.lock:
            self._exhausted = self._done = False
            self._append(leases)
            self._leases_changed.notify_all()

    def mark_exhausted(self, *, done: bool) -> None:
        """Records that the last call brought no lease.

        Args:
            done: Whether no later call will: the loop ends when all that is here was trained.
        """
        with self.lock:
            self._exhausted, self._done = True, done
            self._wake_consumers()

    @abstractmethod
    def mark_away(self) -> None:
        """Records that the master does not answer, or leases nothing yet because it took over."""

    def end(self, error: EdlError | None = None) -> None:
        """Ends the loop: nothing more goes in or out; the first error is raised in the loop."""
        with self.lock:
            self.closing = True
            self._error = self._error or error
            self.call_due.notify_all()
            self._wake_consumers()

    @abstractmethod
    def _append(self, leases: tuple[Lease, ...]) -> None:
        """Stores leased tasks; needs the lock."""

    def _wake_consumers(self) -> None:
        """Wakes all threads but the fetcher; needs the lock."""
        self._leases_changed.notify_all()

    def _tasks_for(self, records: int) -> int:
        """Returns how many tasks to lease for so many missing records, 1 to `MAX_LEASES_WANTED`."""
        return max(1, min(MAX_LEASES_WANTED, records // self._task_records))
