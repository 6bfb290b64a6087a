"""What members do together, as streams round the ring (pure: bytes in, bytes out).

An operation puts what it sends first into `out` and returns the views that are to be filled with
what comes from the member before, one after the other; each is dealt with when it is full, and
mostly sent on. So sending and receiving overlap, and everything moves in chunks.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from edl.errors import RoundOver

Out = deque[memoryview]
Inbound = Iterator[memoryview]
Array = np.ndarray[Any, Any]

CHUNK_BYTES = 256 << 10
"""What is sent on at once, and summed at once: stays in a core's cache."""
SCRATCH_BYTES = 512 << 10
PAYLOAD_BYTES = 1 << 20
"""The largest payload of `gather`."""
_LENGTH = struct.Struct("!Q")


class Place(NamedTuple):
    """Where a member stands in the ring."""

    rank: int
    world: int

    def back(self, steps: int) -> int:
        """The rank this many places before."""
        return (self.rank - steps) % self.world


def all_reduce(flat: Array, scratch: Array, place: Place, out: Out) -> Inbound:
    """Sums up, in a way that gives the same bits to all members.

    Args:
        flat: One-dimensional and contiguous; changed in place.
        scratch: SCRATCH_BYTES of the same type.
        place: This member's.
        out: What is to be sent.
    """
    if flat.size * place.world <= len(scratch):
        blocks = scratch[: flat.size * place.world].reshape(place.world, flat.size)
        blocks[place.rank] = flat  # sent from here: the sum may be there before this has left
        out.extend(chunks(_bytes(blocks[place.rank])))
        return _summed(flat, blocks, place, out)
    out.extend(chunks(_bytes(_part(flat, place.rank, place.world))))
    return _reduced(flat, scratch, place, out)


def _summed(flat: Array, blocks: Array, place: Place, out: Out) -> Inbound:
    """Everybody's numbers go to everybody: half as many steps, which is what little costs."""
    for back in range(1, place.world):
        for view in chunks(_bytes(blocks[place.back(back)])):
            yield view
            if back < place.world - 1:
                out.append(view)
    flat[:] = blocks[0]
    for block in blocks[1:]:  # numpy's own sum may take another order on another processor
        flat += block


def _reduced(flat: Array, scratch: Array, place: Place, out: Out) -> Inbound:
    """Partial sums of parts go round once, then whole sums; each part is summed in one order."""
    step = CHUNK_BYTES // flat.itemsize
    raw = _bytes(scratch)
    for back in range(1, place.world):
        part = _part(flat, place.back(back), place.world)
        for start in range(0, len(part), step):
            piece = part[start : start + step]
            yield raw[: piece.nbytes]
            piece += scratch[: len(piece)]
            out.append(_bytes(piece))
    for back in range(place.world - 1):
        for view in chunks(_bytes(_part(flat, place.back(back), place.world))):
            yield view
            if back < place.world - 2:
                out.append(view)


def gather(payload: bytes, found: list[bytes], place: Place, out: Out) -> Inbound:
    """Everybody's payload goes to everybody.

    Args:
        payload: This member's.
        found: By rank; filled.
        place: This member's.
        out: What is to be sent.
    """
    found[place.rank] = payload
    out.extend(_framed(payload))
    return _gathered(found, place, out)


def _gathered(found: list[bytes], place: Place, out: Out) -> Inbound:
    for back in range(1, place.world):
        head = bytearray(_LENGTH.size)
        yield memoryview(head)
        (length,) = _LENGTH.unpack(head)
        if length > PAYLOAD_BYTES:
            raise RoundOver(f"a payload of {length} bytes came; {PAYLOAD_BYTES} are allowed")
        payload = bytearray(length)
        yield memoryview(payload)
        found[place.back(back)] = bytes(payload)
        if back < place.world - 1:
            out.extend(_framed(found[place.back(back)]))


def _framed(payload: bytes) -> list[memoryview]:
    return [memoryview(_LENGTH.pack(len(payload))), memoryview(payload)]


def _part(flat: Array, rank: int, world: int) -> Array:
    """A view of a rank's part; the first ranks' are longer by one where it does not divide."""
    least, more = divmod(len(flat), world)
    start = rank * least + min(rank, more)
    return flat[start : start + least + (rank < more)]


def _bytes(array: Array) -> memoryview:
    return array.data.cast("B") if array.size else memoryview(b"")


def chunks(view: memoryview) -> Iterator[memoryview]:
    """A view of bytes, cut for sending or receiving."""
    return (view[at : at + CHUNK_BYTES] for at in range(0, len(view), CHUNK_BYTES))
