"""A function from a record's number to the record; also endless streams."""

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
    """Returns a data set of `read(number)` for numbers from 0.

    Args:
        name: Name of the data set.
        read: Called in a background thread; if it raises, the task fails and names the record.
        size: Number of records; None for an endless stream.
        collate: Makes a batch of a list of records; lists by default.
    """
    if size is not None and size <= 0:
        raise DataError(f"data set {name!r} is empty: size is {size}")
    return Dataset(name, FunctionSource(read, size, collate))


class FunctionSource(RecordwiseSource):
    """A `Source` of a function."""

    def __init__(
        self, read: Callable[[int], Any], size: int | None, collate: Collate | None
    ) -> None:
        super().__init__(collate)
        self._read, self._size = read, size

    @override
    def shape(self) -> protocol.Json:
        return {"stream": True} if self._size is None else {"records": self._size}

    @override
    def record(self, file: str | None, number: int) -> Any:  # noqa: ARG002 - any record; no files
        """Returns the result of the function."""
        return self._read(number)
