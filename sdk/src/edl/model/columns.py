"""`.npz` files as a source: records are rows of the arrays in them, batches are arrays by name."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from edl import wire
from edl.errors import DataError, RecordError, one_line

Columns = dict[str, Any]
"""Arrays by name, in the order of the file; the first axis is records."""

_LOCAL = struct.Struct("<26xHH")
"""Of a member's header in a zip file: the lengths of its name and of what follows that."""
_SUFFIX = ".npy"
_USUAL = (1, 0)
"""Version of numpy's format; others are for names that it cannot hold."""


class ColumnFiles:
    """A `Source` with files; all hold arrays of the same names, types and shapes of a record."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Opens them all.

        Raises:
            DataError: A file cannot be read, or differs from the first; the text names both.
        """
        self._files: dict[str, Columns] = {}
        for path in paths:
            found = columns(path)
            if self._files:
                _same(paths[0], next(iter(self._files.values())), path, found)
            if self._files.setdefault(path.name, found) is not found:
                raise DataError(f"two files have the name {path.name!r}: records could be mixed up")

    def shape(self) -> wire.Json:
        """As in `Source`."""
        return {"files": [{"name": name, "records": size(f)} for name, f in self._files.items()]}

    def read(self, file: str | None, start: int, end: int) -> Columns:
        """As in `Source`; costs no copy."""
        found = self._files.get(file or "")
        if found is None:
            raise DataError(f"the master knows a file {file!r} that this trainer was not given")
        if end > size(found):
            raise RecordError(end - 1, f"{file} has {size(found)} records")
        return {name: array[start:end] for name, array in found.items()}

    def batch(self, blocks: Sequence[Columns]) -> Columns:
        """A copy, so that a program may change its batch and not the data."""
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def size(found: Mapping[str, Any]) -> int:
    """Number of records."""
    return len(next(iter(found.values())))


def columns(path: Path) -> Columns:
    """The arrays of one file; what is not compressed stays on the disk until it is used.

    So trainers on one machine share the pages of a file, which `numpy.savez` does not compress.

    Raises:
        DataError: It is no `.npz` file, holds other objects, or arrays of different lengths.
    """
    try:
        with zipfile.ZipFile(path) as found, path.open("rb") as file:
            members = [one for one in found.infolist() if one.filename.endswith(_SUFFIX)]
            arrays = {one.filename[: -len(_SUFFIX)]: _array(found, file, one) for one in members}
    except (OSError, zipfile.BadZipFile, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {one_line(error)}") from error
    return _checked(path, arrays)


def _checked(path: Path, arrays: Columns) -> Columns:
    if not arrays:
        raise DataError(f"{path} holds no arrays: write it with numpy.savez(file, inputs=...)")
    single = [name for name, array in arrays.items() if not array.ndim]
    if single:
        raise DataError(f"{path}: {single[0]!r} is one number: the first axis must be records")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"{path} has arrays of different lengths ({said}): one row is one record")
    if not next(iter(lengths.values())):
        raise DataError(f"{path} holds no records")
    return arrays


def _array(found: zipfile.ZipFile, file: IO[bytes], member: zipfile.ZipInfo) -> Any:
    """One array, mapped into memory where it can be."""
    if member.compress_type == zipfile.ZIP_STORED:
        with found.open(member) as stream:
            if np.lib.format.read_magic(stream) == _USUAL:
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
                if not dtype.hasobject and all(shape):
                    place = _begin(file, member) + stream.tell()
                    order: Any = "F" if fortran else "C"
                    mapped = np.memmap(file, dtype, "r", place, shape, order)
                    return np.asarray(mapped)  # slices of a memmap take ten times as long
    with found.open(member) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _begin(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin."""
    file.seek(member.header_offset)
    name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
    return member.header_offset + _LOCAL.size + int(name) + int(extra)


def _same(path: Path, first: Columns, other: Path, found: Columns) -> None:
    said, heard = (
        {name: f"{array.dtype}{list(array.shape[1:])}" for name, array in one.items()}
        for one in (first, found)
    )
    if said != heard:
        raise DataError(f"{other.name} holds {heard}, but {path.name} holds {said}")
