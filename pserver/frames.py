"""Bodies and files with arrays in them: a JSON header, raw little-endian arrays, a checksum.

Layout, all numbers little-endian:

    4 bytes   magic "EDLF"
    4 bytes   length of the header
    header    JSON: {"meta": {...}, "arrays": [[name, dtype, shape], ...]}
    zeros     up to a multiple of 8; then each array, padded to a multiple of 8 likewise
    4 bytes   CRC-32 of all that comes before

Nothing is ever executed or allocated because a header says so: sizes must add up to what is there.
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
MOST_HEADER_BYTES = 16 << 20
MOST_ARRAYS = 4096
MOST_DIMENSIONS = 2
"""Parameters travel flat, rows of tables as matrices."""
_HEAD = struct.Struct("<4sI")
_TAIL = struct.Struct("<I")
_ALIGNMENT = 8
_CHUNK_BYTES = 8 << 20
DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "int64": np.dtype("<i8")}


class FrameError(ValueError):
    """Bytes that are no frame; the text says where they are wrong."""


class Frame(NamedTuple):
    """What one holds; arrays are views of the bytes it was read from."""

    meta: Json
    arrays: dict[str, Array]


def encode(meta: Mapping[str, Any], arrays: Mapping[str, Body] | None = None) -> list[memoryview]:
    """A frame, in parts to be written one after the other; arrays are not copied.

    Args:
        meta: JSON.
        arrays: By name; a list of arrays of equal width is written as one.

    Raises:
        FrameError: An array of another kind than frames hold.
    """
    listed, bodies = [], []
    for name, body in (arrays or {}).items():
        parts = body if isinstance(body, list) else [body]
        listed.append(_described(name, parts))
        bodies.append(parts)
    header = orjson.dumps({"meta": meta, "arrays": listed})
    found = [_padded(_HEAD.pack(MAGIC, len(header)) + header)]
    for parts in bodies:
        raw = [_raw(part) for part in parts if part.size]
        found += [*raw, memoryview(bytes(-size_of(raw) % _ALIGNMENT))]
    found.append(memoryview(_TAIL.pack(_checksum(found))))
    return [part for part in found if part.nbytes]


def decode(data: bytes | bytearray | memoryview) -> Frame:
    """Reads a frame.

    Raises:
        FrameError: It is cut, damaged, longer than it says, or holds what frames do not hold.
    """
    view = memoryview(data).cast("B")
    if view.nbytes < _HEAD.size + _TAIL.size:
        raise FrameError(f"{view.nbytes} bytes are no frame")
    magic, length = _HEAD.unpack_from(view)
    if magic != MAGIC:
        raise FrameError("it does not begin as a frame does")
    if length > MOST_HEADER_BYTES or _HEAD.size + length + _TAIL.size > view.nbytes:
        raise FrameError(f"its header of {length} bytes is too long, or cut")
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
    """Bytes of an encoded frame."""
    return sum(part.nbytes for part in parts)


def _described(name: str, parts: list[Array]) -> list[Any]:
    """An array as the header lists it; parts lie one below the other."""
    first = parts[0]
    alike = all(part.dtype == first.dtype and part.shape[1:] == first.shape[1:] for part in parts)
    if first.dtype.name not in DTYPES or first.ndim > MOST_DIMENSIONS or not alike:
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
        raise FrameError("its header is no JSON object of meta and arrays") from error
    if not isinstance(meta, dict) or not isinstance(listed, list) or len(listed) > MOST_ARRAYS:
        raise FrameError("its header is no JSON object of meta and arrays")
    found = [_entry(one) for one in listed]
    if len({name for name, _, _, _ in found}) != len(found):
        raise FrameError("two of its arrays have one name")
    return meta, found


def _entry(one: object) -> tuple[str, np.dtype[Any], tuple[int, ...], int]:
    match one:
        case [str(name), str(dtype), list(shape)] if (
            dtype in DTYPES and len(shape) <= MOST_DIMENSIONS and all(map(_is_size, shape))
        ):
            return name, DTYPES[dtype], tuple(shape), int(prod(shape)) * DTYPES[dtype].itemsize
    raise FrameError(f"its header has {one!r:.80} where an array should be")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _checksum(parts: Iterable[memoryview]) -> int:
    """In chunks: the interpreter is not to stand still for a whole shard."""
    found = 0
    for part in parts:
        for at in range(0, part.nbytes, _CHUNK_BYTES):
            found = crc32(part[at : at + _CHUNK_BYTES], found)
    return found


def _padded(data: bytes) -> memoryview:
    return memoryview(data + bytes(-len(data) % _ALIGNMENT))


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT
