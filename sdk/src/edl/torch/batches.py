"""The micro-batches of one member, from a `DataLoader` or an EDL data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch

from edl.errors import DataError
from edl.overriding import override
from edl.sources.leased_records import LeasedRecords
from edl.sync.group_round import PlanReader
from edl.sync.plans import Assignment, Plan
from edl.sync.step_reader import MicroBatch, StepReader, UnreadableTask
from edl.torch.sampler import IndexReader, LeasedSampler


class MemberReader(PlanReader, Protocol):
    """Reads a member's part of each planned step, and returns it when the step begins."""

    def take(self, plan: Plan) -> Assignment:
        """Returns this member's micro-batches of a requested step; called once for each step."""
        ...


class MemberBatches(Protocol):
    """Provides this member's micro-batches, one after the other."""

    def new_reader(self, records: LeasedRecords) -> MemberReader:
        """Returns a new reader, and drops batches that were read ahead."""
        ...

    def next(self) -> Any:
        """Returns the next micro-batch; raises any error of its source."""
        ...


class LoaderBatches(MemberBatches):
    """Batches of a `DataLoader`, which is iterated again when an iteration has used up all planned batches."""

    def __init__(self, loader: Any, sampler: LeasedSampler) -> None:
        self._loader, self._sampler = loader, sampler
        self._iterator: Iterator[Any] | None = None

    @override
    def new_reader(self, records: LeasedRecords) -> IndexReader:
        self._iterator = None
        return IndexReader(records, self._sampler)

    @override
    def next(self) -> Any:
        for _ in range(2):
            if self._iterator is None:
                self._iterator = self._new_iterator()
            try:
                return next(self._iterator)
            except StopIteration:
                self._iterator = None
        raise DataError(
            "the DataLoader has no batch left: nothing else may take batches from training.sampler"
        )

    def _new_iterator(self) -> Iterator[Any]:
        """Returns a new iterator, and restores the random state, from which it draws its workers' seed."""
        state = torch.get_rng_state()
        iterator: Iterator[Any] = iter(self._loader)
        torch.set_rng_state(state)
        return iterator


class UnreadableError(Exception):
    """A task cannot be read: the step is skipped, and the task fails."""

    def __init__(self, task: UnreadableTask) -> None:
        super().__init__(task.reason)
        self.task = task


class RecordReader(MemberReader):
    """Reads an EDL data set ahead on a thread."""

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

    @override
    def take(self, plan: Plan) -> Assignment:
        """Waits until the step's records are read; returns this member's micro-batches."""
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


class RecordBatches(MemberBatches):
    """The micro-batches of an EDL data set."""

    def __init__(self) -> None:
        self._reader: RecordReader | None = None

    @override
    def new_reader(self, records: LeasedRecords) -> RecordReader:
        self._reader = RecordReader(records)
        return self._reader

    @override
    def next(self) -> Any:
        if self._reader is None:
            raise StopIteration
        return self._reader.next()
