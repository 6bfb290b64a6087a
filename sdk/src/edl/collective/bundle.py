"""The format of a broadcast: a header with types and shapes, then the arrays' bytes (pure)."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from edl import json_text
from edl.collective.operations import Array, Inbound, Out, chunks
from edl.errors import RoundOver, one_line

_HEAD = struct.Struct("!QQ")
_MAX_SPEC = 64 << 20
_MAX_META = 256 << 20
_PLAIN = frozenset("biufcmMSU")
"""Kinds of numpy types whose type string describes them completely."""
_KIND = re.compile(r"[<>|=][biufcmMSU][0-9]{1,9}(\[[0-9a-zA-Z]{1,12}\])?")
"""Type strings of these kinds; numpy itself accepts many more."""


def encode_header(meta: bytes, arrays: Sequence[Array]) -> bytes:
    """Returns the header, which has the types and shapes of the arrays.

    Args:
        meta: Any bytes.
        arrays: Arrays of plain types.

    Raises:
        TypeError: An array holds objects or records.
        ValueError: There are more bytes or arrays than allowed.
    """
    for index, array in enumerate(arrays):
        if array.dtype.kind not in _PLAIN:
            raise TypeError(f"array {index} is of {array.dtype}: send a view as plain numbers")
    spec = json.dumps([[array.dtype.str, array.shape] for array in arrays]).encode()
    if len(spec) > _MAX_SPEC or len(meta) > _MAX_META:
        text = f"{len(arrays)} arrays with {len(meta)} bytes of meta are too much to broadcast"
        raise ValueError(f"{text}: the limit for meta is {_MAX_META} bytes")
    return _HEAD.pack(len(spec), len(meta)) + spec


def enqueue(header: bytes, meta: bytes, arrays: Sequence[Array], out: Out) -> None:
    """Appends the whole broadcast to `out`; copies only arrays that are not contiguous.

    Args:
        header: The result of `encode_header`.
        meta: The bytes passed to `encode_header`.
        arrays: The arrays passed to `encode_header`.
        out: Receives the views to send.
    """
    for view in (memoryview(header), memoryview(meta), *(_raw(array) for array in arrays)):
        out.extend(chunks(view))


class ReceivedBroadcast:
    """The bytes and arrays of a broadcast, complete once the iterator `inbound` has ended."""

    def __init__(self) -> None:
        self.meta = b""
        self.arrays: list[Array] = []

    def inbound(self, out: Out, *, last: bool) -> Inbound:
        """Yields the views to fill, and appends each filled view to `out` unless this member is the last.

        Raises:
            RoundOver: The header is larger than allowed.
        """
        head = bytearray(_HEAD.size)
        yield from _forwarded(memoryview(head), out, last=last)
        spec_bytes, meta_bytes = _HEAD.unpack(head)
        if spec_bytes > _MAX_SPEC or meta_bytes > _MAX_META:
            raise RoundOver(f"a broadcast of {spec_bytes} and {meta_bytes} bytes is too large")
        spec, meta = bytearray(spec_bytes), bytearray(meta_bytes)
        yield from _forwarded(memoryview(spec), out, last=last)
        yield from _forwarded(memoryview(meta), out, last=last)
        self.meta = bytes(meta)
        for kind, shape in _parse_spec(bytes(spec)):
            array = _empty(kind, shape)
            self.arrays.append(array)
            yield from _forwarded(_raw(array), out, last=last)


def decode_header(raw: bytes) -> tuple[bytes, list[Array]]:
    """Returns the meta bytes of a broadcast, and new arrays to receive its contents.

    Args:
        raw: The result of `encode_header`, followed by `meta`.

    Raises:
        RoundOver: The bytes are malformed, or the memory is too small for the arrays.
    """
    if len(raw) < _HEAD.size:
        raise RoundOver(f"the header of a broadcast has only {len(raw)} bytes")
    spec_bytes, meta_bytes = _HEAD.unpack_from(raw)
    if _HEAD.size + spec_bytes + meta_bytes != len(raw):
        raise RoundOver(
            f"the start of a broadcast of {spec_bytes} and {meta_bytes} bytes has {len(raw)} bytes"
        )
    end = _HEAD.size + spec_bytes
    arrays = [_empty(kind, shape) for kind, shape in _parse_spec(raw[_HEAD.size : end])]
    return raw[end:], arrays


def _parse_spec(raw: bytes) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
    """Reads the types and shapes of a broadcast's arrays.

    Raises:
        RoundOver: The bytes are not a result of `encode_header`.
    """
    try:
        return [_parse_entry(kind, shape) for kind, shape in json_text.loads(raw)]
    except (ValueError, TypeError) as error:
        raise RoundOver(
            f"the list of arrays of a broadcast is malformed: {one_line(error)}"
        ) from error


def _parse_entry(kind: object, shape: object) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if isinstance(kind, str) and _KIND.fullmatch(kind) and isinstance(shape, list):
        dtype: np.dtype[Any] = np.dtype(kind)
        if all(type(size) is int and size >= 0 for size in shape):
            return dtype, tuple(shape)
    raise TypeError(f"array {kind!r:.40} of shape {shape!r:.40}")


def _empty(kind: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Returns a new array.

    Raises:
        RoundOver: The memory is too small for the array, or numpy does not support it.
    """
    try:
        return np.empty(shape, kind)
    except (MemoryError, ValueError) as error:
        raise RoundOver(f"no memory for an array of {kind} and shape {list(shape)}") from error


def _forwarded(view: memoryview, out: Out, *, last: bool) -> Inbound:
    for chunk in chunks(view):
        yield chunk
        if not last:
            out.append(chunk)


def _raw(array: Array) -> memoryview:
    """Returns an array's bytes, also for types that memoryview does not support."""
    if not array.nbytes:
        return memoryview(b"")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
