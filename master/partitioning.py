"""Partition of a data set into tasks: the records of the n-th task are computed, never stored."""

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from edl_protocol.fields import MOST

from master.types import Json

MAX_RECORDS = MOST
"""Records of a data set, all its epochs together."""


class Span(NamedTuple):
    """Records [start, end) of a data set, or of one of its files."""

    start: int
    end: int
    file: str | None = None

    @property
    def size(self) -> int:
        """Number of records."""
        return self.end - self.start


class Partitioning:
    """The tasks of one epoch. A task never holds records of two files."""

    def __init__(self, shape: Json) -> None:
        """Reads a data set's description: `records`, `files` or `stream`, and `task_records`."""
        self._step: int = shape["task_records"]
        self._records: int | None = shape.get("records")
        self._files: list[Json] | None = shape.get("files")
        self._ends = list(accumulate(self._tasks_of(file["records"]) for file in self._files or ()))
        self.count: int | None = None
        """Number of tasks; None for a stream, which has no end."""
        if self._files is not None:
            self.count = self._ends[-1]
        elif self._records is not None:
            self.count = self._tasks_of(self._records)

    @property
    def records(self) -> int | None:
        """Number of records of one epoch; None for a stream."""
        if self._files is not None:
            return sum(int(file["records"]) for file in self._files)
        return self._records

    @property
    def bound(self) -> int:
        """Number of tasks; for a stream, of those whose records have numbers up to 2^53."""
        return MAX_RECORDS // self._step if self.count is None else self.count

    def has(self, index: int) -> bool:
        """Whether a task of this index exists."""
        return 0 <= index < self.bound

    def span(self, index: int) -> Span:
        """The records of a task that exists: 0 <= index < count."""
        if self._files is None:
            start = index * self._step
            end = start + self._step
            return Span(start, end if self._records is None else min(end, self._records))
        place = bisect_right(self._ends, index)
        file = self._files[place]
        start = (index - (self._ends[place - 1] if place else 0)) * self._step
        return Span(start, min(start + self._step, file["records"]), file["name"])

    def _tasks_of(self, records: int) -> int:
        return -(-records // self._step)
