"""Plain files: each is one record, converted by a function."""

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
    """Returns a data set of files, in the order of their names; all trainers need the same files.

    Args:
        name: Name of the data set.
        paths: Files, from `Path.glob` for example.
        read: Makes a record of a file; its bytes by default.
        collate: Makes a batch of a list of records; lists by default.
    """
    sorted_paths = sorted(Path(path) for path in paths)
    if not sorted_paths:
        raise _no_file(name)
    return Dataset(name, FileSource(sorted_paths, read, collate))


def open_by_name(
    name: str, paths: Iterable[PathLike], open_file: Callable[[Path], File]
) -> dict[str, File]:
    """Opens the files of a data set; returns name -> file, with the names that the master uses.

    Raises:
        DataError: There is no file, or two have the same name; as `open_file`.
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
    def record(self, file: str | None, number: int) -> Any:  # noqa: ARG002 - any record; no files
        """Returns the result of `read` for the file."""
        return self._read(self._paths[number])
