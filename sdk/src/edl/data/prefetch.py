"""The prefetch queue of one loop: leased tasks, the batch under construction, finished batches.

Three threads use the queue: the fetcher adds leases, the reader builds batches from the leased records,
and the program takes batches. There is one lock with three conditions; each condition is notified only
when the thread that waits for it must act.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from edl.data.lease_sink import MAX_LEASES_WANTED, LeaseSink
from edl.errors import DataError, EdlError, RecordError, is_transient, one_line
from edl.master.leases import LeaseTable, Portion
from edl.master.protocol import Lease
from edl.overriding import override
from edl.sources.leased_records import LeasedRecords

log = logging.getLogger("edl")


@dataclass(frozen=True)
class Batch:
    """The records of one step."""

    data: Any
    portions: tuple[Portion, ...]

    @property
    def size(self) -> int:
        """Number of records."""
        return sum(portion.size for portion in self.portions)


class BatchBuilder:
    """Builds batches from leased records; used only by the reader thread."""

    def __init__(self, records: LeasedRecords, lease_table: LeaseTable, batch_size: int) -> None:
        self._records, self._lease_table, self._batch_size = records, lease_table, batch_size
        self._blocks: list[Any] = []
        self._portions: list[Portion] = []
        self.size = 0
        """Number of records in the batch under construction."""
        self._position: tuple[Lease, int] | None = None
        """The lease that is being read, and the next record to read."""

    def add(self, lease: Lease | None) -> tuple[Batch | None, int, bool]:
        """Reads more records of a leased task; without a lease, completes the batch under construction.

        Returns:
            The batch if one was completed, otherwise None; by how many records the task's unread part
            shrinks; and whether nothing more will be read from the task.
        """
        if lease is None or not self._fits(lease):
            return self._flush(), 0, False
        at = self._position[1] if self._position and self._position[0] is lease else lease.start
        if not self._lease_table.is_active(lease):
            return None, lease.end - at, True
        count = min(self._batch_size - self.size, lease.end - at)
        try:
            block = self._records.read(lease, at, at + count)
        except Exception as error:  # noqa: BLE001 - the program's reader may raise anything
            self._fail(lease, error)
            return None, lease.end - at, True
        self._blocks.append(block)
        self._portions.append(Portion(lease, count))
        self.size += count
        self._position = (lease, at + count)
        full = self.size >= self._batch_size
        return (self._flush() if full else None), count, at + count >= lease.end

    def _fits(self, lease: Lease) -> bool:
        """Returns whether the lease has the epoch, kind, data set and model version of the current batch."""
        if not self._portions:
            return True
        first = self._portions[0].lease
        return (first.epoch, first.kind, first.dataset, first.model_version) == (
            lease.epoch,
            lease.kind,
            lease.dataset,
            lease.model_version,
        )

    def _fail(self, lease: Lease, error: Exception) -> None:
        """Marks the task as failed and removes its records from the batch under construction."""
        transient = is_transient(error)
        if isinstance(error, RecordError):
            self._lease_table.fail(lease, error.reason, error.record, transient=transient)
            log.warning("task %s failed: %s", lease.task, error)
        else:
            self._lease_table.fail(lease, one_line(error), transient=transient)
            log.warning("task %s failed: %s", lease.task, one_line(error))
        indices = [i for i, portion in enumerate(self._portions) if portion.lease is not lease]
        self._blocks = [self._blocks[i] for i in indices]
        self._portions = [self._portions[i] for i in indices]
        self.size = sum(portion.size for portion in self._portions)

    def _flush(self) -> Batch | None:
        """Completes the batch without the records of ended leases.

        Returns None if no records are left or the batch cannot be built.
        """
        table = self._lease_table
        indices = [i for i, portion in enumerate(self._portions) if table.is_active(portion.lease)]
        blocks = [self._blocks[i] for i in indices]
        portions = tuple(self._portions[i] for i in indices)
        self._blocks, self._portions, self.size = [], [], 0
        if not portions:
            return None
        try:
            return Batch(self._records.batch(blocks), portions)
        except Exception as error:  # noqa: BLE001 - the program's collate may raise anything
            for portion in portions:
                table.fail(portion.lease, f"batch: {one_line(error)}")
            log.warning("cannot build a batch of %s: %s", portions[0].lease.task, one_line(error))
            return None


class PrefetchQueue(LeaseSink):
    """A queue of up to `prefetch` finished batches, and leased but unread records for about as many."""

    def __init__(
        self,
        records: LeasedRecords,
        lease_table: LeaseTable,
        batch_size: int,
        prefetch: int,
        task_records: int,
    ) -> None:
        super().__init__(task_records)
        self._builder = BatchBuilder(records, lease_table, batch_size)
        self._prefetch = prefetch
        self._low = batch_size * prefetch
        self._batch_ready = threading.Condition(self.lock)
        self._unread: deque[Lease] = deque()
        self._unread_records = 0
        """Number of records that are leased but unread."""
        self._ready: deque[Batch] = deque()
        self._reading = False

    # -- for the fetcher ---------------------------------------------------------------------

    @override
    def leases_wanted(self) -> int:
        full = self._unread_records >= self._low or len(self._unread) >= MAX_LEASES_WANTED
        if self.closing or full:
            return 0
        return self._tasks_for(self._low - self._unread_records)

    @override
    def mark_away(self) -> None:
        """Lets the reader complete a smaller batch from the queued leases."""
        self.mark_exhausted(done=False)

    @override
    def end(self, error: EdlError | None = None) -> None:
        """Ends the loop and drops all leases and batches; if there was an error, `next` raises it."""
        super().end(error)
        with self.lock:
            self._unread.clear()
            self._ready.clear()
            self._unread_records = 0

    @override
    def _append(self, leases: tuple[Lease, ...]) -> None:
        self._unread.extend(leases)
        self._unread_records += sum(lease.size for lease in leases)

    @override
    def _wake_consumers(self) -> None:
        super()._wake_consumers()
        self._batch_ready.notify_all()

    # -- for the program ---------------------------------------------------------------------

    def next(self, timeout_s: float) -> Batch | None:
        """Returns the next batch; None after the timeout, at the end, or if the queue is closed.

        Raises:
            EdlError: The error that ended the loop.
        """
        with self.lock:
            if not self._ready and not self.closing and not self._drained():
                self._batch_ready.wait(timeout_s)
            if self._error is not None:
                raise self._error
            if not self._ready:
                return None
            batch = self._ready.popleft()
            self._leases_changed.notify()
            return batch

    @property
    def ended(self) -> bool:
        """Whether no further batch will come."""
        with self.lock:
            return not self._ready and (self.closing or self._drained())

    def _drained(self) -> bool:
        busy = self._reading or self._builder.size or self._unread or self._ready
        return self._done and not busy

    # -- for the reader ----------------------------------------------------------------------

    def read(self) -> None:
        """Runs the reader thread: reads until the queue closes."""
        try:
            self._read()
        except BaseException as error:
            self.end(DataError(f"the reader thread failed: {one_line(error)}"))
            raise

    def _read(self) -> None:
        while True:
            with self.lock:
                while not self.closing and not self._readable():
                    self._reading = False
                    if not self._builder.size:
                        self._batch_ready.notify()
                    self._leases_changed.wait()
                if self.closing:
                    return
                self._reading = True
                lease = self._unread[0] if self._unread else None
            batch, read_records, finished = self._builder.add(lease)
            with self.lock:
                self._unread_records -= read_records
                if finished and self._unread and self._unread[0] is lease:
                    self._unread.popleft()
                if batch is not None and not self.closing:
                    self._ready.append(batch)
                    self._batch_ready.notify()
                if self._unread_records < self._low or finished or batch is None:
                    self.call_due.notify()

    def _readable(self) -> bool:
        if len(self._ready) >= self._prefetch:
            return False
        return bool(self._unread) or (self._exhausted and self._builder.size > 0)
