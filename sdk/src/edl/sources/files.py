"""Plain files: each is one record, its path or what a function makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Union

from edl import wire
from edl.errors import DataError
from edl.sources.base import Collate, Dataset, Records

PathLike = Union[str, "os.PathLike[str]"]


def from_files(
    name: str,
    paths: Iterable[PathLike],
    read: Callable[[Path], Any] = Path.read_bytes,
    collate: Collate | None = None,
) -> Dataset:
    """A data set of files, in the order of their names: every trainer must see the same.

    Args:
        name: The data set's.
        paths: Files, from `Path.glob` for example.
        read: Makes a record of a file; its bytes by default.
        collate: Makes a batch of a list of records; lists by default.
    """
    found = sorted(Path(path) for path in paths)
    if not found:
        raise DataError(f"data set {name!r} is empty: no file was given")
    return Dataset(name, Files(found, read, collate))


class Files(Records):
    """A `Source`."""

    def __init__(
        self, paths: list[Path], read: Callable[[Path], Any], collate: Collate | None
    ) -> None:
        super().__init__(collate)
        self._paths, self._read = paths, read

    def shape(self) -> wire.Json:
        """As in `Source`."""
        return {"records": len(self._paths)}

    def one(self, file: str | None, number: int) -> Any:  # noqa: ARG002 - any record; no files
        """What `read` makes of the file."""
        return self._read(self._paths[number])
