"""Bodies and files with arrays: a JSON header, little-endian arrays, a checksum. Needs numpy. Pure.

Layout, all numbers little-endian:

    4 bytes   magic "EDLF"
    4 bytes   length of the header
    header    JSON: {"meta": {...}, "arrays": [[name, dtype, shape], ...]}
    zeros     up to a multiple of 8; then each array, padded to a multiple of 8
    4 bytes   CRC-32 of everything before

A reader executes nothing. It allocates nothing before it has checked that the sizes in the header
add up to the frame's length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Callable, NamedTuple, Union
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from edl_protocol.fields import Json

Array = NDArray[Any]
Body = Union[Array, list[Array]]
"""An array, or arrays of equal width that are written as one."""

CONTENT_TYPE = "application/vnd.edl.frame"
MAGIC = b"EDLF"
MAX_HEADER_BYTES = 16 << 20
MAX_ARRAYS = 4096
MAX_DIMENSIONS = 2
"""Dense parameters are one-dimensional, rows of tables two-dimensional."""
MAX_SIZE = 1 << 53
"""Limit of one dimension: numpy cannot express larger ones, even of an array with no elements."""
_HEAD = struct.Struct("<4sI")
_TAIL = struct.Struct("<I")
_ALIGNMENT = 8
_CHUNK_BYTES = 8 << 20
_DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "int64": np.dtype("<i8")}


class FrameError(ValueError):
    """Raised for bytes that are not a frame; the message says what is wrong."""


class Frame(NamedTuple):
    """A decoded frame; its arrays are views of the bytes it was decoded from."""

    meta: Json
    arrays: dict[str, Array]


@dataclass(frozen=True)
class FrameFormat:
    """Writes and reads frames; each side serializes the headers with its own JSON library."""

    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    """Raises ValueError for bytes that are not JSON."""

    def encode(
        self, meta: Mapping[str, Any], arrays: Mapping[str, Body] | None = None
    ) -> list[memoryview]:
        """Encodes a frame as parts to be written one after the other; arrays are not copied.

        Args:
            meta: The JSON object of the header.
            arrays: Name -> float32 or int64 array of at most `MAX_DIMENSIONS` dimensions.

        Raises:
            FrameError: An array has a type or shape that frames do not support.
        """
        entries, bodies = [], []
        for name, body in (arrays or {}).items():
            parts = body if isinstance(body, list) else [body]
            dtype, shape = _type_and_shape(name, parts)
            entries.append((name, dtype, shape))
            bodies.append([_raw(part, _DTYPES[dtype]) for part in parts if part.size])
        header = self.dumps({"meta": meta, "arrays": entries})
        segments = [_padded(_HEAD.pack(MAGIC, len(header)) + header)]
        for raw in bodies:
            segments += [*raw, memoryview(bytes(-size_of(raw) % _ALIGNMENT))]
        segments.append(memoryview(_TAIL.pack(_checksum(segments))))
        return [part for part in segments if part.nbytes]

    def decode(self, data: bytes | bytearray | memoryview) -> Frame:
        """Decodes a frame.

        Raises:
            FrameError: It is truncated, damaged, too long, or has unsupported arrays.
        """
        view = memoryview(data).cast("B")
        if view.nbytes < _HEAD.size + _TAIL.size:
            raise FrameError(f"{view.nbytes} bytes are not a frame")
        magic, length = _HEAD.unpack_from(view)
        if magic != MAGIC:
            raise FrameError("it does not begin like a frame")
        if length > MAX_HEADER_BYTES or _HEAD.size + length + _TAIL.size > view.nbytes:
            raise FrameError(f"its header of {length} bytes is too long, or truncated")
        meta, entries = self._header(bytes(view[_HEAD.size : _HEAD.size + length]))
        at = _aligned(_HEAD.size + length)
        end = at + sum(_aligned(entry.size) for entry in entries)
        if end + _TAIL.size != view.nbytes:
            raise FrameError(f"it has {view.nbytes} bytes and should have {end + _TAIL.size}")
        if _checksum([view[:end]]) != _TAIL.unpack_from(view, end)[0]:
            raise FrameError("its checksum is wrong")
        arrays: dict[str, Array] = {}
        for name, dtype, shape, size in entries:
            arrays[name] = np.frombuffer(view[at : at + size], dtype).reshape(shape)
            at += _aligned(size)
        if len(arrays) != len(entries):
            raise FrameError("two of its arrays have one name")
        return Frame(meta, arrays)

    def _header(self, raw: bytes) -> tuple[Json, list[_Entry]]:
        try:
            header = self.loads(raw)
            meta, listed = header["meta"], header["arrays"]
        except (ValueError, KeyError, TypeError) as error:
            raise FrameError("its header is not a JSON object of meta and arrays") from error
        if not isinstance(meta, dict) or not isinstance(listed, list) or len(listed) > MAX_ARRAYS:
            raise FrameError("its header is not a JSON object of meta and arrays")
        return meta, [_parse_entry(entry) for entry in listed]


class _Entry(NamedTuple):
    """An array as the header describes it; `size` in bytes, without padding."""

    name: str
    dtype: np.dtype[Any]
    shape: list[int]
    size: int


def size_of(parts: Iterable[memoryview]) -> int:
    """Returns the size of an encoded frame in bytes."""
    return sum(part.nbytes for part in parts)


def _type_and_shape(name: str, parts: list[Array]) -> tuple[str, list[int]]:
    """Returns an array's type and shape for the header; its parts are concatenated along the first axis."""
    first = parts[0]
    dtype = first.dtype.name  # numpy takes a microsecond to make the name
    alike = all(
        part.dtype == first.dtype and part.shape[1:] == first.shape[1:] for part in parts[1:]
    )
    if dtype not in _DTYPES or first.ndim > MAX_DIMENSIONS or not alike:
        raise FrameError(f"array {name!r} is {dtype} of {first.ndim} dimensions")
    shape = list(first.shape)
    if len(parts) > 1:
        shape[0] = sum(len(part) for part in parts)
    return dtype, shape


def _raw(array: Array, dtype: np.dtype[Any]) -> memoryview:
    return np.ascontiguousarray(array, dtype=dtype).reshape(-1).data.cast("B")


def _parse_entry(entry: object) -> _Entry:
    if isinstance(entry, list) and len(entry) == len(("name", "dtype", "shape")):
        name, dtype, shape = entry
        if (
            isinstance(name, str)
            and isinstance(dtype, str)
            and dtype in _DTYPES
            and isinstance(shape, list)
            and len(shape) <= MAX_DIMENSIONS
            and not [size for size in shape if type(size) is not int or not 0 <= size <= MAX_SIZE]
        ):
            kind = _DTYPES[dtype]
            return _Entry(name, kind, shape, prod(shape) * kind.itemsize)
    raise FrameError(f"its header has {entry!r:.80} where an array should be")


def _checksum(parts: Iterable[memoryview]) -> int:
    """Computes the CRC-32 in chunks, so that other threads run in between."""
    crc = 0
    for part in parts:
        for at in range(0, part.nbytes, _CHUNK_BYTES):
            crc = crc32(part[at : at + _CHUNK_BYTES], crc)
    return crc


def _padded(data: bytes) -> memoryview:
    return memoryview(data + bytes(-len(data) % _ALIGNMENT))


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT
