"""Collective operations as streams around the ring (pure: bytes in, bytes out).

An operation puts the first views to send into `out` and returns an iterator over views to fill, one
after the other, with bytes from the previous member. Each full view is processed and usually sent on.
Everything is sent in chunks, so sending and receiving overlap.
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
"""Size of the blocks that are sent and summed, small enough for a core's cache."""
SCRATCH_BYTES = 512 << 10
PAYLOAD_BYTES = 1 << 20
"""The largest payload of `gather`."""
_LENGTH = struct.Struct("!Q")


class RingPosition(NamedTuple):
    """A member's position in the ring: its rank and the number of members."""

    rank: int
    world_size: int

    def back(self, steps: int) -> int:
        """Returns the rank of the member `steps` positions before this one."""
        return (self.rank - steps) % self.world_size


def all_reduce(flat: Array, scratch: Array, position: RingPosition, out: Out) -> Inbound:
    """Sums the members' arrays; all members get bitwise equal results.

    Args:
        flat: A one-dimensional contiguous array, which is changed in place.
        scratch: SCRATCH_BYTES of memory of the same type.
        position: This member's position.
        out: Receives the views to send.
    """
    world_size = position.world_size
    if flat.size * world_size <= len(scratch):
        blocks = scratch[: flat.size * world_size].reshape(world_size, flat.size)
        blocks[position.rank] = flat  # sends a copy: `flat` may change before it is sent
        out.extend(chunks(_bytes(blocks[position.rank])))
        return _gather_and_sum(flat, blocks, position, out)
    out.extend(chunks(_bytes(_part(flat, position.rank, world_size))))
    return _reduce_and_share(flat, scratch, position, out)


def _gather_and_sum(flat: Array, blocks: Array, position: RingPosition, out: Out) -> Inbound:
    """Sends every array to every member.

    This halves the number of steps, which determines the time for small arrays.
    """
    for back in range(1, position.world_size):
        for view in chunks(_bytes(blocks[position.back(back)])):
            yield view
            if back < position.world_size - 1:
                out.append(view)
    flat[:] = blocks[0]
    for block in blocks[1:]:  # numpy.sum may use a different order on a different processor
        _add(flat, block)


def _reduce_and_share(flat: Array, scratch: Array, position: RingPosition, out: Out) -> Inbound:
    """Runs a reduce-scatter, then an all-gather; each part is summed in a fixed order."""
    step = CHUNK_BYTES // flat.itemsize
    raw = _bytes(scratch)
    for back in range(1, position.world_size):
        part = _part(flat, position.back(back), position.world_size)
        for start in range(0, len(part), step):
            block = part[start : start + step]
            yield raw[: block.nbytes]
            _add(block, scratch[: len(block)])
            out.append(_bytes(block))
    for back in range(position.world_size - 1):
        for view in chunks(_bytes(_part(flat, position.back(back), position.world_size))):
            yield view
            if back < position.world_size - 2:
                out.append(view)


def _add(total: Array, block: Array) -> None:
    """Adds in place; the caller checks the sum for infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        total += block


def gather(payload: bytes, payloads: list[bytes], position: RingPosition, out: Out) -> Inbound:
    """Sends every member's payload to every member (MPI's allgather).

    Args:
        payload: This member's payload.
        payloads: List to fill with the payloads by rank.
        position: This member's position.
        out: Receives the views to send.
    """
    payloads[position.rank] = payload
    out.extend(_with_length(payload))
    return _receive_payloads(payloads, position, out)


def _receive_payloads(payloads: list[bytes], position: RingPosition, out: Out) -> Inbound:
    for back in range(1, position.world_size):
        head = bytearray(_LENGTH.size)
        yield memoryview(head)
        (length,) = _LENGTH.unpack(head)
        if length > PAYLOAD_BYTES:
            raise RoundOver(f"received a payload of {length} bytes; the limit is {PAYLOAD_BYTES}")
        payload = bytearray(length)
        yield memoryview(payload)
        payloads[position.back(back)] = bytes(payload)
        if back < position.world_size - 1:
            out.extend(_with_length(payloads[position.back(back)]))


def _with_length(payload: bytes) -> list[memoryview]:
    return [memoryview(_LENGTH.pack(len(payload))), memoryview(payload)]


def _part(flat: Array, rank: int, world_size: int) -> Array:
    """Returns a view of a rank's part; if the length is not divisible, the first parts are longer by one."""
    size, remainder = divmod(len(flat), world_size)
    start = rank * size + min(rank, remainder)
    return flat[start : start + size + (rank < remainder)]


def _bytes(array: Array) -> memoryview:
    return array.data.cast("B") if array.size else memoryview(b"")


def chunks(view: memoryview) -> Iterator[memoryview]:
    """Cuts a view of bytes into chunks for sending or receiving."""
    return (view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES))
