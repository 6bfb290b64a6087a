"""The base class for queues that a work fetcher fills with leased tasks. Pure."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from edl.errors import EdlError
from edl.master.protocol import Lease

MAX_LEASES_WANTED = 64
"""Maximum number of tasks leased in one call."""


class LeaseSink(ABC):
    """A queue that receives leases; thread-safe."""

    def __init__(self, task_records: int) -> None:
        """Creates an empty queue.

        Args:
            task_records: Records per task.
        """
        self._task_records = task_records
        self.lock = threading.Lock()
        self.call_due = threading.Condition(self.lock)
        """Wakes the fetcher when more leases are wanted or there are results to report."""
        self._leases_changed = threading.Condition(self.lock)
        """Wakes the thread that takes leases when leases were added or no more will come."""
        self._exhausted = False
        """Whether no more leases will come soon, so that consumers should use the queued leases."""
        self._done = False
        """Whether the master reported that no work is left."""
        self.closing = False
        self._error: EdlError | None = None

    @abstractmethod
    def leases_wanted(self) -> int:
        """Returns how many tasks to lease now; the caller holds the lock."""

    def add_leases(self, leases: tuple[Lease, ...]) -> None:
        """Adds leased tasks."""
        with self.lock:
            self._exhausted = self._done = False
            self._append(leases)
            self._leases_changed.notify_all()

    def mark_exhausted(self, *, done: bool) -> None:
        """Records that the last call returned no lease.

        Args:
            done: Whether no later call will return a lease either; the loop then ends after the queued
                leases.
        """
        with self.lock:
            self._exhausted, self._done = True, done
            self._wake_consumers()

    @abstractmethod
    def mark_away(self) -> None:
        """Records that the master does not answer, or has just taken over and leases nothing yet."""

    def end(self, error: EdlError | None = None) -> None:
        """Closes the queue for the fetcher and consumers; the loop ends, and raises the first error if any."""
        with self.lock:
            self.closing = True
            self._error = self._error or error
            self.call_due.notify_all()
            self._wake_consumers()

    @abstractmethod
    def _append(self, leases: tuple[Lease, ...]) -> None:
        """Stores leased tasks; the caller holds the lock."""

    def _wake_consumers(self) -> None:
        """Wakes all threads except the fetcher; the caller holds the lock."""
        self._leases_changed.notify_all()

    def _tasks_for(self, records: int) -> int:
        """Returns how many tasks to lease for this number of records: 1 to `MAX_LEASES_WANTED`."""
        return max(1, min(MAX_LEASES_WANTED, records // self._task_records))
