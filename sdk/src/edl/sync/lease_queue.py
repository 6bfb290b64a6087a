"""The leader's queue of leased tasks, in order, from which it plans steps.

It is to the leader what `edl.data.prefetch.PrefetchQueue` is to a loop of one trainer: a fetcher
adds leases, the leader takes the records of steps. The order of records is the master's: it depends
on the seed, and not on time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from edl.errors import EdlError
from edl.master.leases import LeaseTable
from edl.master.protocol import Lease
from edl.sync.plans import Span

_MAX_LEASES_WANTED = 64
"""Most tasks leased in one call, and most tasks queued where they are enough for a step."""


class LeaseQueue:
    """A bounded queue of leased tasks; thread-safe. About `low` records are kept leased ahead."""

    def __init__(
        self,
        lease_table: LeaseTable,
        low: int,
        task_records: int,
        is_master_away: Callable[[], bool],
    ) -> None:
        """Starts with the leases of the lease table.

        Args:
            lease_table: The group's.
            low: Leases more once fewer records are queued.
            task_records: Records of a whole task.
            is_master_away: While it returns True, too few records are not planned as a smaller
                step: more of the epoch may come when the master is back.
        """
        self._lease_table = lease_table
        self._low, self._task_records = low, task_records
        self._is_master_away = is_master_away
        self.lock = threading.Lock()
        self.call_due = threading.Condition(self.lock)
        """Wakes the fetcher: more leases are wanted, or there is something to report."""
        self._arrived = threading.Condition(self.lock)
        self._tasks: deque[tuple[Lease, int]]
        """Leases, each with its first record that is not planned."""
        self._largest_step = 1
        """Records of the largest step requested so far."""
        self._exhausted = self._over = False
        self.closing = False
        self._error: EdlError | None = None
        self.rewind()

    # -- for the fetcher ---------------------------------------------------------------------

    def leases_wanted(self) -> int:
        """How many tasks to lease now; needs the lock."""
        size = self._records_ahead()
        missing = max(self._low, self._largest_step) - size
        full = len(self._tasks) >= _MAX_LEASES_WANTED and size >= self._largest_step
        if self.closing or missing <= 0 or full:
            return 0
        return max(1, min(_MAX_LEASES_WANTED, missing // self._task_records))

    def is_full_enough(self) -> bool:
        """Whether at least half of the records to keep leased ahead are queued; needs the lock."""
        enough = max(self._low // 2, self._largest_step)
        return not self.closing and self._records_ahead() >= enough

    def add_leases(self, leases: tuple[Lease, ...]) -> None:
        """Adds leased tasks."""
        with self.lock:
            self._exhausted = self._over = False
            # a task that was lost and is leased again has a new lease; the old one is removed
            tasks = [
                (lease, start) for lease, start in self._tasks if self._lease_table.is_active(lease)
            ]
            queued = {lease for lease, _ in tasks}
            tasks += [(lease, lease.start) for lease in leases if lease not in queued]
            self._tasks = deque(tasks)
            self._arrived.notify_all()

    def mark_exhausted(self, *, done: bool) -> None:
        """Records that the last call brought no lease; `done`: no later call will."""
        with self.lock:
            self._exhausted, self._over = True, done
            self._arrived.notify_all()

    def end(self, error: EdlError | None = None) -> None:
        """Closes the queue: nothing more goes in or out."""
        with self.lock:
            self.closing = True
            self._error = self._error or error
            self.call_due.notify_all()
            self._arrived.notify_all()

    # -- for the leader ----------------------------------------------------------------------

    def rewind(self) -> None:
        """Makes all records that were planned but not trained available again."""
        with self.lock:
            leases = self._lease_table.leases()
            self._tasks = deque((lease, lease.start + done) for lease, done in leases)
            self.call_due.notify_all()

    def next_step(self, records: int, wait_s: float) -> tuple[Span, ...] | None:
        """Takes the next step's records: of one epoch, and fewer only at an epoch's end.

        Returns:
            An empty tuple if there are too few so far, or after `end`; None after the last record.

        Raises:
            EdlError: The error that `end` was called with.
        """
        with self.lock:
            self._largest_step = max(self._largest_step, records)
            if not (self._has_step(records) or self._is_finished() or self.closing):
                self.call_due.notify_all()
                self._arrived.wait(wait_s)
            if self._error is not None:
                raise self._error
            if self._is_finished():
                return None
            spans = self._take_records(records) if self._has_step(records) else ()
            if not self.is_full_enough():
                self.call_due.notify_all()
            return spans

    def report_ready(self) -> None:
        """Notes that the lease table has something to report.

        While the queue is full enough, the fetcher is not woken, but reports soon by itself: to
        wake it at every step would cost the step's own thread more time.
        """
        with self.lock:
            if not self.is_full_enough():
                self.call_due.notify_all()

    def _is_finished(self) -> bool:
        return self._over and not self._tasks

    def _records_ahead(self) -> int:
        return sum(lease.end - start for lease, start in self._tasks)

    def _has_step(self, records: int) -> bool:
        """Whether a whole batch of one epoch is queued, or all records that it will ever have."""
        if self.closing or not self._tasks:
            return False
        epoch, size = self._tasks[0][0].epoch, 0
        for lease, start in self._tasks:
            if lease.epoch != epoch:
                return True
            size += lease.end - start
        return size >= records or (self._exhausted and not self._is_master_away())

    def _take_records(self, records: int) -> tuple[Span, ...]:
        spans: list[Span] = []
        missing, epoch = records, self._tasks[0][0].epoch
        while missing and self._tasks and self._tasks[0][0].epoch == epoch:
            lease, start = self._tasks.popleft()
            count = min(missing, lease.end - start)
            if self._lease_table.is_active(lease):
                spans.append(Span(lease, start, count))
                missing -= count
                if start + count < lease.end:
                    self._tasks.appendleft((lease, start + count))
        return tuple(spans)
