"""The batch sampler of a `DataLoader`: the indices of this member's next micro-batches (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from edl.errors import DataError
from edl.master import protocol
from edl.overriding import override
from edl.sources.base import RandomAccess, Source
from edl.sources.leased_records import LeasedRecords
from edl.sync.plans import Assignment, Plan, Span


class IndexSource(Source, RandomAccess):
    """A source that returns indices as records; the `DataLoader` reads the data."""

    def __init__(self, count: Any) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise DataError(
                f"records is {count!r:.40}: it is the number of records, such as len(train_set)"
            )
        self._count: int = count

    @override
    def shape(self) -> protocol.Json:
        return {"records": self._count}

    @override
    def read(self, file: str | None, start: int, end: int) -> Sequence[int]:  # noqa: ARG002 - the interface has it
        return range(start, end)

    @override
    def pick(self, numbers: Sequence[int]) -> Sequence[int]:
        return numbers

    @override
    def batch(self, blocks: Sequence[Sequence[int]]) -> list[int]:
        return [int(number) for block in blocks for number in block]


class LeasedSampler:
    """The `batch_sampler` of a `DataLoader`: an iterator over lists of indices.

    The iterator ends when it has no more lists, and can be used again once `extend` has added some;
    so can the iteration of a `DataLoader`.
    """

    def __init__(self) -> None:
        self._batches: deque[list[int]] = deque()

    def __iter__(self) -> LeasedSampler:
        return self

    def __next__(self) -> list[int]:
        """Returns the indices of the next planned micro-batch."""
        if not self._batches:
            raise StopIteration
        return self._batches.popleft()

    def __len__(self) -> int:
        """Returns the number of waiting micro-batches, for `DataLoader`."""
        return len(self._batches)

    def extend(self, batches: Iterable[list[int]]) -> None:
        """Adds micro-batches, after all others."""
        self._batches.extend(batches)

    def clear(self) -> None:
        """Drops all waiting micro-batches."""
        self._batches.clear()


class IndexReader:
    """An `edl.torch.batches.MemberReader` that passes the indices of planned steps to the sampler."""

    def __init__(self, records: LeasedRecords, sampler: LeasedSampler) -> None:
        self._records, self._sampler = records, sampler
        self._assignments: dict[str, Assignment] = {}

    def request(self, plan: Plan, micro_batches: Assignment) -> None:
        """Adds this member's micro-batches of a step."""
        self._assignments[plan.name] = micro_batches
        self._sampler.extend(self._indices(spans) for _, spans in micro_batches)

    def take(self, plan: Plan) -> Assignment:
        """Returns this member's micro-batches of a requested step; called once for each step."""
        return self._assignments.pop(plan.name)

    def close(self, join_s: float) -> None:  # noqa: ARG002 - there is no thread to join
        """Drops all requests."""
        self._assignments.clear()
        self._sampler.clear()

    def _indices(self, spans: Iterable[Span]) -> list[int]:
        read = self._records.read
        blocks = [read(span.lease, span.start, span.start + span.count) for span in spans]
        indices: list[int] = self._records.batch(blocks)
        return indices
