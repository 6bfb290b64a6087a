"""A source of `.npz` files: each record is a row of every array, and batches are dicts of arrays."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from edl.errors import DataError, RecordError, one_line
from edl.master import protocol
from edl.overriding import override
from edl.sources.base import RandomAccess, Source

Columns = dict[str, Any]
"""Name -> array, in the file's order; the first axis of each array is records."""

_LOCAL_HEADER = struct.Struct("<26xHH")
"""The lengths of the name and of the extra field in the local header of a zip member."""
_SUFFIX = ".npy"
_VERSION_1 = (1, 0)
"""Version of numpy's format; numpy uses later versions only for long or non-Latin field names."""


class NpzSource(Source, RandomAccess):
    """A `Source` of files whose arrays have the same names, types and record shapes."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Opens all files.

        Raises:
            DataError: A file cannot be read, two files have the same name, or a file's arrays differ from
                those of the first file.
        """
        self._files: dict[str, Columns] = {}
        for path in paths:
            arrays = read_arrays(path)
            if self._files:
                _check_same(paths[0], next(iter(self._files.values())), path, arrays)
            if self._files.setdefault(path.name, arrays) is not arrays:
                raise DataError(f"two files are named {path.name!r}: rename one of them")
        self._by_place = list(self._files.values())
        self._ends = np.cumsum([record_count(arrays) for arrays in self._files.values()])

    @override
    def shape(self) -> protocol.Json:
        return {
            "files": [{"name": name, "records": record_count(f)} for name, f in self._files.items()]
        }

    @override
    def read(self, file: str | None, start: int, end: int) -> Columns:
        """Returns views of the records [start, end)."""
        arrays = self._files.get(file or "")
        if arrays is None:
            raise DataError(f"the master's data set has a file {file!r} that this trainer lacks")
        if end > record_count(arrays):
            raise RecordError(end - 1, f"{file} has {record_count(arrays)} records")
        return {name: array[start:end] for name, array in arrays.items()}

    @override
    def pick(self, numbers: Sequence[int]) -> Columns:
        """Returns copies of the records with these numbers."""
        chosen = np.asarray(numbers)
        if len(self._files) == 1:
            return {
                name: a.take(chosen, axis=0) for name, a in next(iter(self._files.values())).items()
            }
        places = np.searchsorted(self._ends, chosen, side="right")
        first = next(iter(self._files.values()))
        shape = {name: (len(chosen), *array.shape[1:]) for name, array in first.items()}
        picked = {name: np.empty(shape[name], array.dtype) for name, array in first.items()}
        for place in np.unique(places).tolist():
            mine = np.flatnonzero(places == place)
            within = chosen[mine] - (self._ends[place - 1] if place else 0)
            for name, array in self._by_place[place].items():
                picked[name][mine] = array[within]
        return picked

    @override
    def batch(self, blocks: Sequence[Columns]) -> Columns:
        """Returns a copy of the records; the program may change the copy."""
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def record_count(arrays: Mapping[str, Any]) -> int:
    """Returns the number of records."""
    return len(next(iter(arrays.values())))


def read_arrays(path: Path) -> Columns:
    """Reads the arrays of one file; maps uncompressed arrays into memory.

    Trainers on the same machine then share the pages of a file written by `numpy.savez`.

    Raises:
        DataError: The file is not an `.npz` file, or holds Python objects, arrays of different lengths, or
            no records.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            members = [member for member in archive.infolist() if member.filename.endswith(_SUFFIX)]
            arrays = {
                member.filename[: -len(_SUFFIX)]: _array(archive, file, member)
                for member in members
            }
    except Exception as error:  # damaged archives raise many types: zlib.error, RuntimeError, ...
        raise DataError(f"cannot read {path}: {one_line(error)}") from error
    return _checked(path, arrays)


def _checked(path: Path, arrays: Columns) -> Columns:
    if not arrays:
        raise DataError(f"{path} holds no arrays: write it with numpy.savez(file, inputs=...)")
    single = [name for name, array in arrays.items() if not array.ndim]
    if single:
        raise DataError(f"{path}: {single[0]!r} is a single number: the first axis must be records")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        lengths_text = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(
            f"{path} has arrays of different lengths ({lengths_text}): each row must be one record"
        )
    if not next(iter(lengths.values())):
        raise DataError(f"{path} holds no records")
    return arrays


def _array(archive: zipfile.ZipFile, file: IO[bytes], member: zipfile.ZipInfo) -> Any:
    """Reads one array, mapped into memory if possible."""
    if member.compress_type == zipfile.ZIP_STORED:
        with archive.open(member) as stream:
            if np.lib.format.read_magic(stream) == _VERSION_1:
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
                if not dtype.hasobject and all(shape):
                    offset = _data_offset(file, member) + stream.tell()
                    order: Any = "F" if fortran else "C"
                    mapped = np.memmap(file, dtype, "r", offset, shape, order)
                    return np.asarray(mapped)  # slicing a memmap takes ten times as long
    with archive.open(member) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _data_offset(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Returns the offset of a member's data."""
    file.seek(member.header_offset)
    name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    return member.header_offset + _LOCAL_HEADER.size + int(name) + int(extra)


def _check_same(path: Path, arrays: Columns, other_path: Path, other_arrays: Columns) -> None:
    types, other_types = (
        {name: f"{array.dtype}{list(array.shape[1:])}" for name, array in file_arrays.items()}
        for file_arrays in (arrays, other_arrays)
    )
    if types != other_types:
        raise DataError(f"{other_path.name} holds {other_types}, but {path.name} holds {types}")
