"""Data sets from files: `.npz`, `.csv`, record files of `edl.records`, or a folder of one kind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Union, cast

from edl.errors import DataError
from edl.sources import Dataset, from_csv, from_records
from edl.sources.record_format import Reader

PathLike = Union[str, "os.PathLike[str]"]

_KINDS = {".npz": "npz", ".csv": "csv"}
_SUPPORTED = "give an .npz file, a .csv file, a file of edl.records, or a folder of one kind"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]+")


def data(path: PathLike | Sequence[PathLike], name: str = "") -> Dataset:
    """Returns a data set of files, or of all files of a folder in the order of their names.

    Batches are arrays by name (`.npz`), lists of dicts (`.csv`) or lists of bytes (record files).

    Args:
        path: The file or folder, or several; each trainer needs the same names and contents.
        name: Of the data set; by default the last part of the first path.

    Raises:
        DataError: There are no files, files of two kinds, or an unreadable file.
    """
    several = isinstance(path, Sequence) and not isinstance(path, str)
    sources = [Path(source) for source in cast("Sequence[PathLike]", path if several else [path])]
    if not sources:
        raise DataError(f"no data is named: {_SUPPORTED}")
    paths = [file for place in sources for file in _files(place)]
    kinds = {_kind(file): file for file in reversed(paths)}
    if len(kinds) > 1:
        first, other = sorted(str(file) for file in kinds.values())[:2]
        raise DataError(f"{first} and {other} are of two kinds: {_SUPPORTED}")
    return _OPEN[next(iter(kinds))](name or _name(sources[0]), paths)


def count(records: Any) -> int:
    """Returns the number of records in a batch of such a data set."""
    if isinstance(records, dict):
        return len(next(iter(records.values())))
    if isinstance(records, tuple):  # of `edl.from_arrays`
        return len(records[0])
    return len(records)


def _files(source: Path) -> list[Path]:
    if not source.exists():
        raise DataError(f"{source} does not exist: {_SUPPORTED}")
    if not source.is_dir():
        return [source]
    files = sorted(p for p in source.iterdir() if p.is_file() and not p.name.startswith("."))
    if not files:
        raise DataError(f"{source} holds no files: {_SUPPORTED}")
    return files


def _kind(path: Path) -> str:
    kind = _KINDS.get(path.suffix.lower())
    if kind is not None:
        return kind
    try:
        Reader(path).close()
    except DataError as error:
        raise DataError(f"{error}; or {_SUPPORTED}") from error
    return "records"


def _name(source: Path) -> str:
    name = _NOT_IN_NAMES.sub("-", source.resolve().stem).strip("-_.:")
    return name or "data"


def _columns(name: str, paths: list[Path]) -> Dataset:
    from edl.model.npz_files import NpzSource  # noqa: PLC0415 - needs numpy, other files do not

    return Dataset(name, NpzSource(paths))


_OPEN: dict[str, Callable[[str, list[Path]], Dataset]] = {
    "npz": _columns,
    "csv": lambda name, paths: from_csv(name, *paths),
    "records": lambda name, paths: from_records(name, *paths),
}
