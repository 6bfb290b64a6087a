"""Micro-batches of a data set of EDL, read ahead by a thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edl.overriding import override
from edl.sources.leased_records import LeasedRecords
from edl.sync.group_round import PlanReader
from edl.sync.plans import Assignment, Plan
from edl.sync.step_reader import MicroBatch, StepReader, UnreadableTask


class UnreadableError(Exception):
    """A task cannot be read; the step is left out, and the task fails."""

    def __init__(self, task: UnreadableTask) -> None:
        super().__init__(task.reason)
        self.task = task


class RecordReader(PlanReader):
    """A reader of this member's micro-batches; see `edl.torch.torch_round.MemberReader`."""

    def __init__(self, records: LeasedRecords) -> None:
        """Starts the thread."""
        self._reader = StepReader(records)
        self._assignments: dict[str, Assignment] = {}
        self._batches: Iterator[MicroBatch] = iter(())
        self._unreadable: UnreadableTask | None = None

    @override
    def request(self, plan: Plan, micro_batches: Assignment) -> None:
        self._assignments[plan.name] = micro_batches
        self._reader.request(plan, micro_batches)

    def take(self, plan: Plan) -> Assignment:
        """Waits until the step's records are read."""
        records = self._reader.wait_for(plan)
        self._unreadable = records if isinstance(records, UnreadableTask) else None
        self._batches = iter(() if isinstance(records, UnreadableTask) else records)
        return self._assignments.pop(plan.name)

    def next(self) -> Any:
        """Returns the records of the next micro-batch.

        Raises:
            UnreadableError: The step's records cannot be read.
        """
        if self._unreadable is not None:
            raise UnreadableError(self._unreadable)
        return next(self._batches).records

    @override
    def close(self, join_s: float) -> None:
        self._reader.close(join_s)


class RecordBatches:
    """The micro-batches of a data set; see `edl.torch.torch_round.MemberBatches`."""

    def __init__(self) -> None:
        self._reader: RecordReader | None = None

    def new_reader(self, records: LeasedRecords) -> RecordReader:
        """Returns a new reader; batches that were read ahead are dropped."""
        self._reader = RecordReader(records)
        return self._reader

    def next(self) -> Any:
        """Returns the next micro-batch; raises whatever its source raises."""
        if self._reader is None:
            raise StopIteration
        return self._reader.next()
