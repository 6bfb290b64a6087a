"""Creates data sets from `.npz`, `.csv` or `edl.records` files, or a folder with files of one kind."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union, cast

from edl.errors import DataError
from edl.sources import Dataset, from_csv, from_records
from edl.sources.record_format import Reader

PathLike = Union[str, "os.PathLike[str]"]

_KINDS = {".npz": "npz", ".csv": "csv"}
_SUPPORTED = "name a .npz, .csv or edl.records file, or a folder of files of one kind"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]+")


def data(path: PathLike | Sequence[PathLike], name: str = "") -> Dataset:
    """Returns a data set of files, or of all files in a folder, sorted by name.

    Batches are dicts of arrays (`.npz`), lists of dicts (`.csv`) or lists of bytes (record files).

    Args:
        path: One or several files or folders; all trainers need the same names and contents.
        name: Name of the data set; by default the last part of the first path.

    Raises:
        DataError: There are no files, the files are of different kinds, or a file is unreadable.
    """
    several = isinstance(path, Sequence) and not isinstance(path, str)
    sources = [Path(source) for source in cast("Sequence[PathLike]", path if several else [path])]
    if not sources:
        raise DataError(f"no data files given: {_SUPPORTED}")
    paths = [file for place in sources for file in _files(place)]
    kinds = {_kind(file): file for file in reversed(paths)}
    if len(kinds) > 1:
        first, other = sorted(str(file) for file in kinds.values())[:2]
        raise DataError(f"{first} and {other} are of different kinds: {_SUPPORTED}")
    return _open(next(iter(kinds)), name or _name(sources[0]), paths)


def count(records: Any) -> int:
    """Returns the number of records in a batch from `data` or `edl.from_arrays`."""
    if isinstance(records, dict):
        return len(next(iter(records.values())))
    if isinstance(records, tuple):  # a batch of `edl.from_arrays`
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
        raise DataError(f"{error}; {_SUPPORTED}") from error
    return "records"


def _name(source: Path) -> str:
    name = _NOT_IN_NAMES.sub("-", source.resolve().stem).strip("-_.:")
    return name or "data"


def _open(kind: str, name: str, paths: list[Path]) -> Dataset:
    if kind == "csv":
        return from_csv(name, *paths)
    if kind == "records":
        return from_records(name, *paths)
    from edl.model.npz_files import NpzSource  # noqa: PLC0415 - only .npz files need numpy

    return Dataset(name, NpzSource(paths))
