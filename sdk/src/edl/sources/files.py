"""A source of plain files: a function converts each file to one record."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, Union

from edl.errors import DataError
from edl.master import protocol
from edl.overriding import override
from edl.sources.base import Collate, Dataset, RecordwiseSource

PathLike = Union[str, "os.PathLike[str]"]
File = TypeVar("File")


def from_files(
    name: str,
    paths: Iterable[PathLike],
    read: Callable[[Path], Any] = Path.read_bytes,
    collate: Collate | None = None,
) -> Dataset:
    """Returns a data set of files, sorted by path; all trainers need the same files.

    Args:
        name: Name of the data set.
        paths: The files, for example from `Path.glob`.
        read: Reads a file as a record; by default the file's bytes are the record.
        collate: Builds a batch from a list of records; by default the list is the batch.
    """
    sorted_paths = sorted(Path(path) for path in paths)
    if not sorted_paths:
        raise _no_file(name)
    return Dataset(name, FileSource(sorted_paths, read, collate))


def open_by_name(
    name: str, paths: Iterable[PathLike], open_file: Callable[[Path], File]
) -> dict[str, File]:
    """Opens the files of a data set and returns them by the names that the master uses.

    Raises:
        DataError: There is no file, two files have the same name, or `open_file` raised the error.
    """
    files: dict[str, File] = {}
    for path in map(Path, paths):
        file = open_file(path)
        if files.setdefault(path.name, file) is not file:
            raise DataError(f"data set {name!r} has two files of the name {path.name!r}")
    if not files:
        raise _no_file(name)
    return files


def _no_file(name: str) -> DataError:
    return DataError(f"data set {name!r} is empty: no file was given")


class FileSource(RecordwiseSource):
    """A `Source` of plain files."""

    def __init__(
        self, paths: list[Path], read: Callable[[Path], Any], collate: Collate | None
    ) -> None:
        super().__init__(collate)
        self._paths, self._read = paths, read

    @override
    def shape(self) -> protocol.Json:
        return {"records": len(self._paths)}

    @override
    def record(self, file: str | None, number: int) -> Any:  # noqa: ARG002 - the master knows no files
        """Returns the result of `read` for the file."""
        return self._read(self._paths[number])
