"""Reads a member's records ahead of its steps, in a thread."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import Any, Union

from edl import clock
from edl.errors import RecordError, RoundOver, is_transient, one_line
from edl.master.protocol import Lease
from edl.sources.leased_records import LeasedRecords
from edl.sync.plans import Assignment, Plan

_AHEAD = 4
"""Number of steps that are read ahead if reading is slow; limits the memory."""
_QUICK_S = 0.001
"""A step that is read in less time does not count as read ahead. So small steps are all read at once,
which wakes threads less often."""
_POLL_S = 0.2


@dataclass(frozen=True)
class UnreadableTask:
    """A task that this member cannot read."""

    lease: Lease
    reason: str
    record: int | None
    transient: bool
    """Whether the storage failed; False if the data is invalid."""


@dataclass(frozen=True)
class MicroBatch:
    """The records of one micro-batch that this member computes."""

    index: int
    size: int
    records: Any


StepRecords = Union[list[MicroBatch], UnreadableTask]


class StepReader:
    """A thread that reads the records of one round's planned steps, in the order of requests."""

    def __init__(self, records: LeasedRecords) -> None:
        self._leased = records
        self._requests: queue.SimpleQueue[tuple[Plan, Assignment] | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[Plan, StepRecords, bool]] = queue.SimpleQueue()
        self._slots: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One entry for each step that may be read now."""
        for _ in range(_AHEAD):
            self._slots.put(None)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edl-sync-reader", daemon=True)
        self._thread.start()

    def request(self, plan: Plan, micro_batches: Assignment) -> None:
        """Requests micro-batches of a step; they are read after all earlier requests."""
        self._requests.put((plan, micro_batches))

    def wait_for(self, plan: Plan) -> StepRecords:
        """Returns the requested records of a step, and drops the records of earlier steps.

        Raises:
            RoundOver: The reader was closed.
        """
        while not self._closed.is_set():
            try:
                read_plan, records, quick = self._ready.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if not quick:
                self._slots.put(None)
            if read_plan is plan:
                return records
        raise RoundOver("the reader was closed")

    def close(self, join_s: float) -> None:
        """Ends the thread; does not interrupt a current read."""
        self._closed.set()
        self._requests.put(None)
        self._slots.put(None)
        self._thread.join(join_s)

    def _run(self) -> None:
        for plan, micro_batches in iter(self._requests.get, None):
            self._slots.get()
            if self._closed.is_set():
                return
            began_s = clock.monotonic_s()
            records = self._read(micro_batches)
            quick = clock.monotonic_s() - began_s < _QUICK_S
            if quick:
                self._slots.put(None)
            self._ready.put((plan, records, quick))

    def _read(self, micro_batches: Assignment) -> StepRecords:
        batches = []
        for index, spans in micro_batches:
            span = spans[0]
            try:
                blocks = []
                for span in spans:
                    end = span.start + span.count
                    blocks.append(self._leased.read(span.lease, span.start, end))
                records = self._leased.batch(blocks)
            except RecordError as error:
                return UnreadableTask(span.lease, error.reason, error.record, error.transient)
            except Exception as error:  # noqa: BLE001 - a program's own reader may raise anything
                return UnreadableTask(span.lease, one_line(error), None, is_transient(error))
            batches.append(MicroBatch(index, sum(span.count for span in spans), records))
        return batches
