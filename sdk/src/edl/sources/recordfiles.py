"""A source of record files, which `edl.records` writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edl.errors import DataError
from edl.master import protocol
from edl.overriding import override
from edl.sources.base import Collate, Dataset, FileNumbers, RecordwiseSource
from edl.sources.files import PathLike, open_by_name
from edl.sources.record_format import Reader


def from_records(
    name: str,
    *paths: PathLike,
    decode: Callable[[bytes], Any] | None = None,
    collate: Collate | None = None,
) -> Dataset:
    """Returns a data set of record files.

    Args:
        name: Name of the data set.
        paths: The files; each trainer needs the same names and contents.
        decode: Converts bytes to a record; by default the bytes are the record.
        collate: Builds a batch from a list of records; by default the list is the batch.

    Raises:
        DataError: A file is missing, empty or not a record file, or two have the same name.
    """
    readers = open_by_name(name, paths, _open_filled)
    return Dataset(name, RecordFileSource(readers, decode, collate))


def _open_filled(path: Path) -> Reader:
    reader = Reader(path)
    if not len(reader):
        raise DataError(f"{path} holds no records")
    return reader


class RecordFileSource(RecordwiseSource):
    """A `Source` of record files."""

    def __init__(
        self,
        readers: dict[str, Reader],
        decode: Callable[[bytes], Any] | None,
        collate: Collate | None,
    ) -> None:
        super().__init__(collate)
        self._readers, self._decode = readers, decode
        self._numbers = FileNumbers((name, len(reader)) for name, reader in readers.items())

    @override
    def shape(self) -> protocol.Json:
        return {"files": [{"name": name, "records": len(r)} for name, r in self._readers.items()]}

    @override
    def locate(self, number: int) -> tuple[str | None, int]:
        return self._numbers.split(number)

    @override
    def record(self, file: str | None, number: int) -> Any:
        """Returns a decoded record."""
        reader = self._readers.get(file or "")
        if reader is None:
            raise DataError(f"the master knows a file {file!r} that this trainer was not given")
        raw = reader[number]
        return raw if self._decode is None else self._decode(raw)
