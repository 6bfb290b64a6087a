"""The leader's queue of leased tasks, in order, from which it plans steps.

A fetcher adds leases, and the leader takes the records of steps. `edl.data.prefetch.PrefetchQueue`
is the corresponding queue for the loops of one trainer. The master determines the order of records,
which depends only on the seed.
"""

from __future__ import annotations

from collections import deque

from edl.data.lease_sink import MAX_LEASES_WANTED, LeaseSink
from edl.master.leases import LeaseTable
from edl.master.protocol import Lease
from edl.overriding import override
from edl.sync.plans import Span


class LeaseQueue(LeaseSink):
    """A bounded queue of leased tasks; thread-safe. It keeps about `low` records leased ahead."""

    def __init__(self, lease_table: LeaseTable, low: int, task_records: int) -> None:
        """Starts with the leases of the lease table.

        Args:
            lease_table: The group's lease table.
            low: Number of queued records below which more are leased.
            task_records: Records of a whole task.
        """
        super().__init__(task_records)
        self._lease_table, self._low = lease_table, low
        self._leases = [lease for lease, _ in lease_table.leases()]
        """Leases that were added to the queue, in order. The lease table may have more for a moment, because
        the fetcher adds leases there first; queued leases must not be added twice."""
        self._tasks: deque[tuple[Lease, int]]
        """Leases, each with its first unplanned record."""
        self._largest_step = 1
        """Records of the largest step requested so far."""
        self.rewind()

    # -- for the fetcher ---------------------------------------------------------------------

    @override
    def leases_wanted(self) -> int:
        size = self._records_ahead()
        missing = max(self._low, self._largest_step) - size
        full = len(self._tasks) >= MAX_LEASES_WANTED and size >= self._largest_step
        if self.closing or missing <= 0 or full:
            return 0
        return self._tasks_for(missing)

    def is_full_enough(self) -> bool:
        """Returns whether at least half of the records to lease ahead are queued; hold the lock."""
        enough = max(self._low // 2, self._largest_step)
        return not self.closing and self._records_ahead() >= enough

    @override
    def mark_away(self) -> None:
        """Makes an incomplete step wait for the master, which may lease more records of the epoch.

        Only a later answer of the master marks the queue as exhausted again.
        """
        with self.lock:
            self._exhausted = self._done = False

    @override
    def _append(self, leases: tuple[Lease, ...]) -> None:
        # a task that was lost and leased again has a new lease, which replaces the old one
        is_active = self._lease_table.is_active
        known = set(self._leases)
        new = [lease for lease in leases if lease not in known and is_active(lease)]
        self._leases = [*filter(is_active, self._leases), *new]
        tasks = [(lease, start) for lease, start in self._tasks if is_active(lease)]
        self._tasks = deque([*tasks, *((lease, lease.start) for lease in new)])

    # -- for the leader ----------------------------------------------------------------------

    def rewind(self) -> None:
        """Makes all records that were planned but not trained available again."""
        with self.lock:
            trained = dict(self._lease_table.leases())
            self._leases = [lease for lease in self._leases if lease in trained]
            self._tasks = deque((lease, lease.start + trained[lease]) for lease in self._leases)
            self.call_due.notify_all()

    def next_step(self, records: int, wait_s: float) -> tuple[Span, ...] | None:
        """Takes the next step's records, all from one epoch; an epoch's last step may have fewer records.

        Returns:
            An empty tuple if too few records are queued, or after `end`; None after the last record.

        Raises:
            EdlError: The error that `end` was called with.
        """
        with self.lock:
            self._largest_step = max(self._largest_step, records)
            if not (self._has_step(records) or self._is_finished() or self.closing):
                self.call_due.notify_all()
                self._leases_changed.wait(wait_s)
            if self._error is not None:
                raise self._error
            if self._is_finished():
                return None
            spans = self._take_records(records) if self._has_step(records) else ()
            if not self.is_full_enough():
                self.call_due.notify_all()
            return spans

    def report_ready(self) -> None:
        """Notes that the lease table has records to report.

        While the queue is full enough, the fetcher soon reports without being woken. Waking it at
        every step would slow down the training thread.
        """
        with self.lock:
            if not self.is_full_enough():
                self.call_due.notify_all()

    def _is_finished(self) -> bool:
        return self._done and not self._tasks

    def _records_ahead(self) -> int:
        return sum(lease.end - start for lease, start in self._tasks)

    def _has_step(self, records: int) -> bool:
        """Returns whether a whole step of one epoch or all remaining records of the epoch are queued."""
        if self.closing or not self._tasks:
            return False
        epoch, size = self._tasks[0][0].epoch, 0
        for lease, start in self._tasks:
            if lease.epoch != epoch:
                return True
            size += lease.end - start
        return size >= records or self._exhausted

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
