"""The interface of sources of records, and data sets: sources with names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edl.errors import DataError, RecordError
from edl.master import protocol


class Source(Protocol):
    """Reads records by number. Used by one thread, which may differ from its creator's."""

    def shape(self) -> protocol.Json:
        """Returns its part of the data set's description: `records`, `files` or `stream`."""
        ...

    def read(self, file: str | None, start: int, end: int) -> Any:
        """Returns a block: records [start, end), of one file if the source has files.

        Raises:
            RecordError: A record cannot be read; the task fails with an error that names it.
        """
        ...

    def batch(self, blocks: Sequence[Any]) -> Any:
        """Joins blocks to the batch that the loop yields; there is at least one."""
        ...


@dataclass(frozen=True)
class Dataset:
    """A source with the name that identifies it to all trainers and the master."""

    name: str
    source: Source

    def __post_init__(self) -> None:
        """Refuses names that the master would refuse."""
        if not protocol.NAME.fullmatch(self.name):
            raise DataError(
                f"the data set's name {self.name!r:.60} must be of letters, digits and _ . : - and "
                "begin with a letter or digit"
            )


Collate = Callable[[list[Any]], Any]
"""Makes a batch of a list of records."""


class RecordwiseSource:
    """Base of sources that read record by record; their blocks are lists."""

    def __init__(self, collate: Collate | None = None) -> None:
        self._collate = collate

    def record(self, file: str | None, number: int) -> Any:
        """Reads one record; its exceptions become a `RecordError` that names the record."""
        raise NotImplementedError

    def read(self, file: str | None, start: int, end: int) -> list[Any]:
        """As in `Source`."""
        return [self._read_record(file, number) for number in range(start, end)]

    def batch(self, blocks: Sequence[list[Any]]) -> Any:
        """Returns a list of records, or the result of `collate` for it."""
        records = [record for block in blocks for record in block]
        return records if self._collate is None else self._collate(records)

    def _read_record(self, file: str | None, number: int) -> Any:
        try:
            return self.record(file, number)
        except RecordError:
            raise
        except Exception as error:
            raise RecordError(number, error) from error
