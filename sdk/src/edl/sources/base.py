"""What a source of records is, and a data set: a source with a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edl import wire
from edl.errors import DataError, RecordError


class Source(Protocol):
    """Reads records by number. Called by one thread, not always the one that made it."""

    def shape(self) -> wire.Json:
        """Its part of a description: `records`, `files` or `stream`."""
        ...

    def read(self, file: str | None, start: int, end: int) -> Any:
        """A block: records [start, end), of one file where the source has files.

        Raises:
            RecordError: One record cannot be read; the task fails and the record is named.
        """
        ...

    def batch(self, blocks: Sequence[Any]) -> Any:
        """What the loop yields: blocks put together; never empty."""
        ...


@dataclass(frozen=True)
class Dataset:
    """A source, and the name that all trainers and the master know it by."""

    name: str
    source: Source

    def __post_init__(self) -> None:
        """Refuses names that the master would refuse."""
        if not wire.NAME.fullmatch(self.name):
            raise DataError(
                f"the data set's name {self.name!r:.60} must be of letters, digits and _ . : - and "
                "begin with a letter or digit"
            )


Collate = Callable[[list[Any]], Any]
"""Makes a batch of a list of records."""


class Records:
    """A part of sources that read record by record: blocks are lists."""

    def __init__(self, collate: Collate | None = None) -> None:
        self._collate = collate

    def one(self, file: str | None, number: int) -> Any:
        """One record; whatever it raises becomes a `RecordError` that names it."""
        raise NotImplementedError

    def read(self, file: str | None, start: int, end: int) -> list[Any]:
        """As in `Source`."""
        return [self._named(file, number) for number in range(start, end)]

    def batch(self, blocks: Sequence[list[Any]]) -> Any:
        """A list of records, or what `collate` makes of it."""
        records = [record for block in blocks for record in block]
        return records if self._collate is None else self._collate(records)

    def _named(self, file: str | None, number: int) -> Any:
        try:
            return self.one(file, number)
        except RecordError:
            raise
        except Exception as error:
            raise RecordError(number, error) from error
