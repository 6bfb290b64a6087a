"""A source that calls a function to get the record of a number; the numbers may be endless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edl.errors import DataError
from edl.master import protocol
from edl.overriding import override
from edl.sources.base import Collate, Dataset, RecordwiseSource


def from_function(
    name: str, read: Callable[[int], Any], size: int | None, collate: Collate | None = None
) -> Dataset:
    """Returns a data set whose records are `read(0)`, `read(1)`, and so on.

    Args:
        name: Name of the data set.
        read: Returns a record; called in a background thread. If it raises an exception, the task fails
            with an error that names the record.
        size: Number of records; None for an endless stream.
        collate: Builds a batch from a list of records; by default the list is the batch.
    """
    if size is not None and size <= 0:
        raise DataError(f"data set {name!r} is empty: size is {size}")
    return Dataset(name, FunctionSource(read, size, collate))


class FunctionSource(RecordwiseSource):
    """A `Source` that calls a function for each record."""

    def __init__(
        self, read: Callable[[int], Any], size: int | None, collate: Collate | None
    ) -> None:
        super().__init__(collate)
        self._read, self._size = read, size

    @override
    def shape(self) -> protocol.Json:
        return {"stream": True} if self._size is None else {"records": self._size}

    @override
    def record(self, file: str | None, number: int) -> Any:  # noqa: ARG002 - a function has no files
        """Returns the result of the function."""
        return self._read(number)
