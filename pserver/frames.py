"""The format of bodies and files with arrays: a JSON header, little-endian arrays, a checksum.

Layout, all numbers little-endian:

    4 bytes   magic "EDLF"
    4 bytes   length of the header
    header    JSON: {"meta": {...}, "arrays": [[name, dtype, shape], ...]}
    zeros     up to a multiple of 8; then each array, padded to a multiple of 8
    4 bytes   CRC-32 of everything before

Nothing is executed or allocated on a header's word: its sizes must add up to the frame's length.
"""

import struct
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import orjson
from numpy.typing import NDArray

Json = dict[str, Any]
Array = NDArray[Any]
Body = Array | list[Array]

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
DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "int64": np.dtype("<i8")}


class FrameError(ValueError):
    """Bytes that are not a frame; the message says what is wrong."""


class Frame(NamedTuple):
    """A decoded frame; its arrays are views of the bytes it was decoded from."""

    meta: Json
    arrays: dict[str, Array]


def encode(meta: Mapping[str, Any], arrays: Mapping[str, Body] | None = None) -> list[memoryview]:
    """Encodes a frame as parts to be written one after the other; arrays are not copied.

    Args:
        meta: The JSON object of the header.
        arrays: By name; a list of arrays of equal width is written as one array.

    Raises:
        FrameError: An array has a type or shape that frames do not support.
    """
    listed, bodies = [], []
    for name, body in (arrays or {}).items():
        parts = body if isinstance(body, list) else [body]
        listed.append(_header_entry(name, parts))
        bodies.append(parts)
    header = orjson.dumps({"meta": meta, "arrays": listed})
    segments = [_padded(_HEAD.pack(MAGIC, len(header)) + header)]
    for parts in bodies:
        raw = [_raw(part) for part in parts if part.size]
        segments += [*raw, memoryview(bytes(-size_of(raw) % _ALIGNMENT))]
    segments.append(memoryview(_TAIL.pack(_checksum(segments))))
    return [part for part in segments if part.nbytes]


def decode(data: bytes | bytearray | memoryview) -> Frame:
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
    meta, listed = _header(bytes(view[_HEAD.size : _HEAD.size + length]))
    at = _aligned(_HEAD.size + length)
    end = at + sum(_aligned(size) for _, _, _, size in listed)
    if end + _TAIL.size != view.nbytes:
        raise FrameError(f"it has {view.nbytes} bytes and should have {end + _TAIL.size}")
    if _checksum([view[:end]]) != _TAIL.unpack_from(view, end)[0]:
        raise FrameError("its checksum is wrong")
    arrays: dict[str, Array] = {}
    for name, dtype, shape, size in listed:
        arrays[name] = np.frombuffer(view[at : at + size], dtype).reshape(shape)
        at += _aligned(size)
    return Frame(meta, arrays)


def size_of(parts: Iterable[memoryview]) -> int:
    """The size of an encoded frame in bytes."""
    return sum(part.nbytes for part in parts)


def _header_entry(name: str, parts: list[Array]) -> list[Any]:
    """The header's entry for an array, whose parts are concatenated along the first axis."""
    first = parts[0]
    alike = all(part.dtype == first.dtype and part.shape[1:] == first.shape[1:] for part in parts)
    if first.dtype.name not in DTYPES or first.ndim > MAX_DIMENSIONS or not alike:
        raise FrameError(f"array {name!r} is {first.dtype.name} of {first.ndim} dimensions")
    shape = list(first.shape)
    if len(parts) > 1:
        shape[0] = sum(len(part) for part in parts)
    return [name, first.dtype.name, shape]


def _raw(array: Array) -> memoryview:
    flat = np.ascontiguousarray(array, dtype=DTYPES[array.dtype.name]).reshape(-1)
    return flat.data.cast("B")


def _header(raw: bytes) -> tuple[Json, list[tuple[str, np.dtype[Any], tuple[int, ...], int]]]:
    try:
        header = orjson.loads(raw)
        meta, listed = header["meta"], header["arrays"]
    except (ValueError, KeyError, TypeError) as error:
        raise FrameError("its header is not a JSON object of meta and arrays") from error
    if not isinstance(meta, dict) or not isinstance(listed, list) or len(listed) > MAX_ARRAYS:
        raise FrameError("its header is not a JSON object of meta and arrays")
    entries = [_parse_entry(entry) for entry in listed]
    if len({name for name, _, _, _ in entries}) != len(entries):
        raise FrameError("two of its arrays have one name")
    return meta, entries


def _parse_entry(entry: object) -> tuple[str, np.dtype[Any], tuple[int, ...], int]:
    match entry:
        case [str(name), str(dtype), list(shape)] if (
            dtype in DTYPES and len(shape) <= MAX_DIMENSIONS and all(map(_is_size, shape))
        ):
            return name, DTYPES[dtype], tuple(shape), int(prod(shape)) * DTYPES[dtype].itemsize
    raise FrameError(f"its header has {entry!r:.80} where an array should be")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SIZE


def _checksum(parts: Iterable[memoryview]) -> int:
    """The CRC-32, computed in chunks so that other threads run in between."""
    crc = 0
    for part in parts:
        for at in range(0, part.nbytes, _CHUNK_BYTES):
            crc = crc32(part[at : at + _CHUNK_BYTES], crc)
    return crc


def _padded(data: bytes) -> memoryview:
    return memoryview(data + bytes(-len(data) % _ALIGNMENT))


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT
