"""Arrays and a text for everybody: described first, then sent as they lie in memory (pure)."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import numpy as np

from edl.errors import RoundOver
from edl.exchange.operations import Array, Inbound, Out, chunks

_HEAD = struct.Struct("!QQ")
_MOST_SPEC = 64 << 20
_MOST_META = 256 << 20
_PLAIN = frozenset("biufcmMSU")
"""Kinds of numpy types that their text describes wholly."""


def describe(meta: bytes, arrays: Sequence[Array]) -> bytes:
    """What goes first: types and shapes.

    Args:
        meta: Any bytes.
        arrays: Of plain types.

    Raises:
        TypeError: An array holds objects or records.
        ValueError: It is more than is allowed.
    """
    for index, array in enumerate(arrays):
        if array.dtype.kind not in _PLAIN:
            raise TypeError(f"array {index} is of {array.dtype}: send a view as plain numbers")
    spec = json.dumps([[array.dtype.str, array.shape] for array in arrays]).encode()
    if len(spec) > _MOST_SPEC or len(meta) > _MOST_META:
        text = f"meta of {len(meta)} bytes and {len(arrays)} arrays are too much to broadcast"
        raise ValueError(f"{text}: {_MOST_META} bytes of meta are allowed")
    return _HEAD.pack(len(spec), len(meta)) + spec


def send(described: bytes, meta: bytes, arrays: Sequence[Array], out: Out) -> None:
    """Puts everything into `out`; only arrays that are not contiguous are copied.

    Args:
        described: By `describe`.
        meta: Any bytes.
        arrays: What was described.
        out: What is to be sent.
    """
    for view in (memoryview(described), memoryview(meta), *(_raw(array) for array in arrays)):
        out.extend(chunks(view))


class Received:
    """What comes from the source; complete when `inbound` has ended."""

    def __init__(self) -> None:
        self.meta = b""
        self.arrays: list[Array] = []

    def inbound(self, out: Out, *, last: bool) -> Inbound:
        """Views to be filled; each is sent on, except by the last member.

        Raises:
            RoundOver: The description cannot be understood.
        """
        head = bytearray(_HEAD.size)
        yield from _passed(memoryview(head), out, last=last)
        spec_bytes, meta_bytes = _HEAD.unpack(head)
        if spec_bytes > _MOST_SPEC or meta_bytes > _MOST_META:
            raise RoundOver(f"a broadcast of {spec_bytes} and {meta_bytes} bytes is too large")
        spec, meta = bytearray(spec_bytes), bytearray(meta_bytes)
        yield from _passed(memoryview(spec), out, last=last)
        yield from _passed(memoryview(meta), out, last=last)
        self.meta = bytes(meta)
        for kind, shape in json.loads(spec):
            array = np.empty(shape, np.dtype(kind))
            self.arrays.append(array)
            yield from _passed(_raw(array), out, last=last)


def _passed(view: memoryview, out: Out, *, last: bool) -> Inbound:
    for chunk in chunks(view):
        yield chunk
        if not last:
            out.append(chunk)


def _raw(array: Array) -> memoryview:
    """An array's bytes; memoryview alone does not know all types."""
    if not array.nbytes:
        return memoryview(b"")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
