"""Data sets from files: `.npz`, `.csv`, record files of `edl.records`, or a folder of one kind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Union, cast

from edl.errors import DataError
from edl.records import Reader
from edl.sources import Dataset, from_csv, from_records

PathLike = Union[str, "os.PathLike[str]"]

_KINDS = {".npz": "npz", ".csv": "csv"}
_WAY_OUT = "give an .npz file, a .csv file, a file of edl.records, or a folder of one kind"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]+")


def data(path: PathLike | Sequence[PathLike], name: str = "") -> Dataset:
    """The data set of files, or of all files of a folder in the order of their names.

    Batches are arrays by name (`.npz`), lists of dicts (`.csv`) or lists of bytes (record files).

    Args:
        path: The file or folder, or several; each trainer needs the same names and contents.
        name: The data set's; by default the last part of the first path.

    Raises:
        DataError: There is nothing, files of two kinds, or one that cannot be read.
    """
    several = isinstance(path, Sequence) and not isinstance(path, str)
    places = [Path(one) for one in cast("Sequence[PathLike]", path if several else [path])]
    if not places:
        raise DataError(f"no data is named: {_WAY_OUT}")
    paths = [file for place in places for file in _files(place)]
    kinds = {_kind(one): one for one in reversed(paths)}
    if len(kinds) > 1:
        first, other = sorted(str(one) for one in kinds.values())[:2]
        raise DataError(f"{first} and {other} are of two kinds: {_WAY_OUT}")
    return _OPEN[next(iter(kinds))](name or _name(places[0]), paths)


def count(records: Any) -> int:
    """How many records a batch of such a data set holds."""
    if isinstance(records, dict):
        return len(next(iter(records.values())))
    if isinstance(records, tuple):  # of `edl.from_arrays`
        return len(records[0])
    return len(records)


def _files(place: Path) -> list[Path]:
    if not place.exists():
        raise DataError(f"{place} does not exist: {_WAY_OUT}")
    if not place.is_dir():
        return [place]
    found = sorted(p for p in place.iterdir() if p.is_file() and not p.name.startswith("."))
    if not found:
        raise DataError(f"{place} holds no files: {_WAY_OUT}")
    return found


def _kind(path: Path) -> str:
    known = _KINDS.get(path.suffix.lower())
    if known is not None:
        return known
    try:
        Reader(path).close()
    except DataError as error:
        raise DataError(f"{error}; or {_WAY_OUT}") from error
    return "records"


def _name(place: Path) -> str:
    found = _NOT_IN_NAMES.sub("-", place.resolve().stem).strip("-_.:")
    return found or "data"


def _columns(name: str, paths: list[Path]) -> Dataset:
    from edl.model.columns import ColumnFiles  # noqa: PLC0415 - needs numpy, other files do not

    return Dataset(name, ColumnFiles(paths))


_OPEN: dict[str, Callable[[str, list[Path]], Dataset]] = {
    "npz": _columns,
    "csv": lambda name, paths: from_csv(name, *paths),
    "records": lambda name, paths: from_records(name, *paths),
}
