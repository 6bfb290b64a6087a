"""The servers' bodies: a JSON header, raw little-endian arrays, a checksum. See `pserver.frames`.

"EDLF" | length of the header | header, padded to 8 | arrays, each padded to 8 | CRC-32
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from edl import json_text

MAGIC = b"EDLF"
_HEAD = struct.Struct("<4sI")
_TAIL = struct.Struct("<I")
_ALIGNMENT = 8
_MAX_DIMENSIONS = 2
_MAX_SIZE = 1 << 53
"""Limit of one dimension: numpy cannot express larger ones, even of an array with no elements."""
_DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "int64": np.dtype("<i8")}


class FrameError(ValueError):
    """Raised for bytes that are not a valid frame."""


class Frame(NamedTuple):
    """A decoded frame; its arrays are views of the received bytes."""

    meta: dict[str, Any]
    arrays: dict[str, Any]


def encode(meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[memoryview]:
    """Encodes a frame as buffers to be sent in order; arrays are not copied.

    Args:
        meta: JSON.
        arrays: float32 or int64 arrays by name.
    """
    entries, bodies = [], []
    for name, array in arrays.items():
        entries.append([name, array.dtype.name, list(array.shape)])
        bodies.append(np.ascontiguousarray(array, dtype=_DTYPES[array.dtype.name]))
    header = json.dumps({"meta": meta, "arrays": entries}, separators=(",", ":")).encode()
    parts = [_padded(_HEAD.pack(MAGIC, len(header)) + header)]
    for body in bodies:
        if body.size:
            parts += [body.reshape(-1).data.cast("B"), memoryview(bytes(-body.nbytes % _ALIGNMENT))]
    checksum = 0
    for part in parts:
        checksum = crc32(part, checksum)
    parts.append(memoryview(_TAIL.pack(checksum)))
    return [part for part in parts if part.nbytes]


def decode(data: bytearray) -> Frame:
    """Reads a frame.

    Raises:
        FrameError: It is truncated, damaged, or its length differs from its header.
    """
    view = memoryview(data)
    try:
        magic, length = _HEAD.unpack_from(view)
        header = json_text.loads(bytes(view[_HEAD.size : _HEAD.size + length]))
        entries = [_entry(*entry) for entry in header["arrays"]]
        meta = header["meta"]
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise FrameError(f"{view.nbytes} bytes are not a frame: {error}") from error
    if not isinstance(meta, dict):
        raise FrameError("a frame's header is not a JSON object")
    at = _aligned(_HEAD.size + length)
    end = at + sum(_aligned(size) for _, _, _, size in entries)
    if magic != MAGIC or end + _TAIL.size != view.nbytes:
        raise FrameError(f"a frame has {view.nbytes} bytes and should have {end + _TAIL.size}")
    if crc32(view[:end]) != _TAIL.unpack_from(view, end)[0]:
        raise FrameError("a frame's checksum is wrong")
    arrays = {}
    for name, dtype, shape, size in entries:
        arrays[name] = np.frombuffer(view[at : at + size], dtype).reshape(shape)
        at += _aligned(size)
    return Frame(meta, arrays)


def _entry(name: str, dtype: str, shape: Sequence[int]) -> tuple[str, Any, tuple[int, ...], int]:
    sizes = tuple(int(size) for size in shape)
    if len(sizes) > _MAX_DIMENSIONS or any(not 0 <= size <= _MAX_SIZE for size in sizes):
        raise FrameError(f"array {name!r:.80} has shape {sizes!s:.80}")
    kind = _DTYPES[dtype]
    count = 1
    for size in sizes:
        count *= size
    return str(name), kind, sizes, count * kind.itemsize


def _padded(data: bytes) -> memoryview:
    return memoryview(data + bytes(-len(data) % _ALIGNMENT))


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT
