"""The interface of record sources, and data sets, which are sources with names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

from edl.errors import DataError, RecordError
from edl.master import protocol
from edl.overriding import override
from edl_protocol.master import is_name


class Source(Protocol):
    """Reads records by number. A single thread uses a source, perhaps not the thread that created it."""

    def shape(self) -> protocol.Json:
        """Returns the source's part of the data set's description: `records`, `files` or `stream`."""
        ...

    def read(self, file: str | None, start: int, end: int) -> Any:
        """Returns a block of the records [start, end); all are in one file if the source has files.

        Raises:
            RecordError: A record cannot be read; the task fails with an error that names the record.
        """
        ...

    def batch(self, blocks: Sequence[Any]) -> Any:
        """Joins one or more blocks into the batch that the training loop receives."""
        ...


@runtime_checkable
class RandomAccess(Protocol):
    """A source that can read any records in one call, which lets epochs shuffle records instead of tasks."""

    def pick(self, numbers: Sequence[int]) -> Any:
        """Returns a block of the records with these numbers, in this order.

        Args:
            numbers: Record numbers, counted from 0 through all files in the order of `shape`.

        Raises:
            RecordError: A record cannot be read; the error has the record's number from `numbers`.
        """
        ...


class FileNumbers:
    """Translates record numbers that are counted through all files to numbers within each file."""

    def __init__(self, files: Iterable[tuple[str, int]]) -> None:
        """Creates the translation from each file's name and number of records."""
        self._names, sizes = zip(*files)
        self._ends = list(accumulate(sizes))

    def split(self, number: int) -> tuple[str, int]:
        """Returns the file that holds a record, and the record's number in this file."""
        place = bisect_right(self._ends, number)
        return self._names[place], number - (self._ends[place - 1] if place else 0)


@dataclass(frozen=True)
class Dataset:
    """A source with a name that identifies it to all trainers and to the master."""

    name: str
    source: Source

    def __post_init__(self) -> None:
        """Refuses names that the master would refuse."""
        if not is_name(self.name):
            raise DataError(
                f"the data set's name {self.name!r:.60} must be of letters, digits and _ . : - and "
                "begin with a letter or digit"
            )


Collate = Callable[[list[Any]], Any]
"""Builds a batch from a list of records."""


class RecordwiseSource(Source, RandomAccess):
    """Base class of sources that read one record at a time; their blocks are lists of records."""

    def __init__(self, collate: Collate | None = None) -> None:
        self._collate = collate

    def record(self, file: str | None, number: int) -> Any:
        """Reads one record. Callers convert any exception to a `RecordError` that names the record."""
        raise NotImplementedError

    @override
    def read(self, file: str | None, start: int, end: int) -> list[Any]:
        return [self._read_record(file, number) for number in range(start, end)]

    @override
    def pick(self, numbers: Sequence[int]) -> list[Any]:
        return [self._pick_record(int(number)) for number in numbers]

    @override
    def batch(self, blocks: Sequence[list[Any]]) -> Any:
        """Returns the list of records, or the batch that `collate` builds from this list."""
        records = [record for block in blocks for record in block]
        return records if self._collate is None else self._collate(records)

    def locate(self, number: int) -> tuple[str | None, int]:
        """Returns a record's file and its number in this file; sources with files override this."""
        return None, number

    def read_one(self, file: str | None, number: int) -> Any:
        """Reads one record of a file."""
        return self._read_record(file, number)

    def _pick_record(self, number: int) -> Any:
        file, within = self.locate(number)
        try:
            return self.read_one(file, within)
        except RecordError as error:
            if file is None:
                raise
            raise picked_error(number, file, error) from error

    def _read_record(self, file: str | None, number: int) -> Any:
        try:
            return self.record(file, number)
        except RecordError:
            raise
        except Exception as error:
            raise RecordError(number, error) from error


def picked_error(number: int, file: str, error: RecordError) -> RecordError:
    """Returns the error that a file raised for a record, with the number counted through all files."""
    reason = error.reason if file in error.reason else f"{file}: {error.reason}"
    picked = RecordError(number, f"record {error.record} of {reason}")
    picked.transient = error.transient
    return picked
