"""The ring of one round: the collective operations that a training loop calls."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import numpy as np

from edl.collective import bundle, operations, ring_setup
from edl.collective.acceptor import Listener
from edl.collective.handshake import RoundPosition
from edl.collective.links import Links
from edl.collective.operations import Array, Inbound, Out, RingPosition
from edl.collective.transport import Interrupt, OnWait, Waiter
from edl.errors import Mismatch, RoundOver, one_line

_HEAD = struct.Struct("!B3xIQ8s")
_OPERATIONS = {1: "all_reduce", 2: "gather", 3: "broadcast", 4: "barrier", 5: "hand_over"}
_NUMBERS = {name: number for number, name in _OPERATIONS.items()}
_SUMMED = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


class Ring:
    """A member's end of a ring of TCP connections; not thread-safe.

    All members must call the same operations in the same order. After `RoundOver` a ring is unusable:
    close it, and connect the ring of the next round. Some members may then have completed the last
    operation and others not, and the contents of its buffer are undefined.
    """

    def __init__(self, position: RoundPosition, names: Sequence[str], waiter: Waiter) -> None:
        self.number, self.rank, self.world_size, _ = position
        self._position = RingPosition(position.rank, position.world_size)
        self._names = names
        self._waiter = waiter
        self._links: Links | None = None
        self._over: RoundOver | None = None
        self._scratch = np.empty(0, np.uint8)

    @classmethod
    def connect(
        cls,
        listener: Listener,
        addresses: Sequence[str],
        rank: int,
        *,
        number: int,
        key: bytes,
        interrupt: Interrupt,
        on_wait: OnWait | None = None,
        channel: int = 0,
    ) -> Ring:
        """Connects to both neighbours; blocks until this is done.

        Args:
            listener: The listener of this process; its address is in `addresses`.
            addresses: `host:port` of all members, in order of rank.
            rank: Rank of this member.
            number: Number of the round.
            key: The job's token; members without it are refused.
            interrupt: Ends this call and every later call of the ring at once.
            on_wait: Called by the blocked thread once a call has been blocked for 0.25 s, with the
                monotonic time since when it has been blocked; called with None when it no longer is.
            channel: Number of the ring among the rings of a round; members connect the rings that they
                share in this order.

        Raises:
            RoundOver: A neighbour is gone or in a later round, or the call was interrupted.
            ValueError: The rank is not one of the members, or the key is empty.
        """
        if not 0 <= rank < len(addresses):
            raise ValueError(f"rank {rank} is not one of {len(addresses)} members")
        if not key:
            raise ValueError("a ring needs the job's token as its key")
        position = RoundPosition(number, rank, len(addresses), channel)
        place = f"channel {channel}, place" if channel else "rank"
        names = [f"{place} {index} ({address})" for index, address in enumerate(addresses)]
        ring = cls(position, names, Waiter(interrupt, on_wait))
        if ring.world_size > 1:
            next_rank = (rank + 1) % ring.world_size
            pair = ring_setup.connect_neighbours(
                listener, position, key, ring._waiter, names=names, address=addresses[next_rank]
            )
            ring._links = Links(pair, ring._waiter, names, rank)
            ring._scratch = np.empty(operations.SCRATCH_BYTES, np.uint8)
        return ring

    @property
    def on_wait(self) -> OnWait | None:
        """The callback for blocked calls; see `connect`."""
        return self._waiter.on_wait

    @on_wait.setter
    def on_wait(self, callback: OnWait | None) -> None:
        """Sets the callback; None for no callback."""
        self._waiter.on_wait = callback

    def all_reduce(self, buffer: Array) -> None:
        """Sums the members' buffers in place; all members get bitwise equal results.

        Args:
            buffer: A contiguous float32 or float64 array of the same length in all members.

        Raises:
            Mismatch: Another member's buffer has a different size or type.
            RoundOver: The round is over.
            TypeError: The buffer cannot be summed in place.
        """
        flat = _flat(buffer)
        scratch = self._scratch.view(flat.dtype)

        def start(out: Out) -> Inbound:
            return operations.all_reduce(flat, scratch, self._position, out)

        self._run(_head("all_reduce", flat.size, flat.dtype.str), start)

    def gather(self, payload: bytes) -> list[bytes]:
        """Returns the payloads of all members, in order of rank.

        Args:
            payload: At most 1 MiB; lengths may differ.

        Raises:
            RoundOver: The round is over.
            ValueError: The payload is too long.
        """
        return self._gather("gather", payload)

    def barrier(self) -> None:
        """Waits until all members have called this method.

        Raises:
            RoundOver: The round is over.
        """
        self._gather("barrier", b"")

    def broadcast(
        self, arrays: Sequence[Array] | None, meta: bytes, source: int
    ) -> tuple[bytes, list[Array]]:
        """Sends the source's arrays and bytes to all members.

        Args:
            arrays: The arrays to send, of plain numpy types; ignored in members other than the source.
            meta: The bytes to send; ignored in members other than the source.
            source: Rank of the member that sends.

        Returns:
            The source's bytes and arrays. The source gets its own arrays back; other members get new ones.

        Raises:
            RoundOver: The round is over.
            TypeError: An array holds objects or records.
            ValueError: The rank does not exist, or the source passes None as arrays.
        """
        if not 0 <= source < self.world_size:
            raise ValueError(f"source {source} is not one of {self.world_size} members")
        received, header = bundle.ReceivedBroadcast(), b""
        if source == self.rank:
            if arrays is None:
                raise ValueError("the source of a broadcast must pass arrays, or []")
            received.meta, received.arrays = meta, list(arrays)
            header = bundle.encode_header(meta, received.arrays)
        last = (self.rank + 1) % self.world_size == source

        def start(out: Out) -> Inbound:
            if source != self.rank:
                return received.inbound(out, last=last)
            bundle.enqueue(header, meta, received.arrays, out)
            return iter(())

        self._run(_head("broadcast", source), start)
        return received.meta, received.arrays

    def receive(self, source: int) -> tuple[bytes, list[Array]]:
        """Receives another member's broadcast; raises the same errors as `broadcast`."""
        return self.broadcast(None, b"", source)

    def hand_over(
        self, arrays: Sequence[Array] | None, meta: bytes, receivers: Collection[int]
    ) -> tuple[bytes, list[Array]]:
        """Sends arrays and bytes to some members only.

        Each receiver gets them from the previous member of the ring. If the previous member is not a
        receiver, it sends its own arrays and bytes, so these must be equal in all members that are not
        receivers but precede a receiver.

        Args:
            arrays: Arrays of plain numpy types; used only in members before a receiver.
            meta: Any bytes; used only in members before a receiver.
            receivers: Ranks of the receivers, the same in all members; not all ranks.

        Returns:
            In a receiver, the received bytes and arrays; in other members, no bytes and an empty list.

        Raises:
            RoundOver: The round is over.
            TypeError: An array holds objects or records.
            ValueError: All members are receivers, or a member before a receiver passes None as arrays.
        """
        if not any(rank not in receivers for rank in range(self.world_size)):
            raise ValueError("a state cannot be handed over where all members lack it")
        receives = self.rank in receivers
        sends = (self.rank + 1) % self.world_size in receivers
        received, header = bundle.ReceivedBroadcast(), b""
        if sends and not receives:
            if arrays is None:
                raise ValueError("the member before the first receiver must pass arrays, or []")
            header = bundle.encode_header(meta, arrays)

        def start(out: Out) -> Inbound:
            if receives:
                return received.inbound(out, last=not sends)
            bundle.enqueue(header, meta, arrays or (), out)
            return iter(())

        self._run(_head("hand_over"), start, sends=sends, receives=receives)
        return received.meta, received.arrays

    def check(self) -> None:
        """Raises `RoundOver` if the round is known to be over; neither sends nor waits."""
        self._waiter.check()
        if self._links is not None:
            self._links.check()

    def close(self) -> None:
        """Leaves the round; the other members' next operation ends with `RoundOver`."""
        links, self._links = self._links, None
        if self._over is None:
            self._over = RoundOver("this ring was closed")
        if links is not None:
            links.leave()

    def __enter__(self) -> Ring:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _gather(self, name: str, payload: bytes) -> list[bytes]:
        if len(payload) > operations.PAYLOAD_BYTES:
            text = f"a payload of {len(payload)} bytes is too long to gather"
            raise ValueError(f"{text}: the limit is {operations.PAYLOAD_BYTES}")
        payloads = [payload] * self.world_size

        def start(out: Out) -> Inbound:
            return operations.gather(payload, payloads, self._position, out)

        self._run(_head(name), start)
        return payloads

    def _run(
        self,
        pack_head: Callable[[int], bytes],
        start: Callable[[Out], Inbound],
        *,
        sends: bool = True,
        receives: bool = True,
    ) -> None:
        if self._over is not None:
            raise type(self._over)(str(self._over))
        links = self._links
        if links is None:
            self._waiter.check()
            return
        head, out = pack_head(links.done), deque[memoryview]()
        inbound: Inbound = iter(())
        if sends:
            out.append(memoryview(head))
        if sends or receives:
            inbound = start(out)
        try:
            links.run(out, self._checked(head, inbound) if receives else inbound)
        except BaseException as error:
            self._end(links, error)
            raise
        finally:
            self._waiter.note_progress()

    def _checked(self, head: bytes, inbound: Inbound) -> Inbound:
        """Compares the previous member's operation with this member's, then yields from `inbound`."""
        previous_head = bytearray(_HEAD.size)
        yield memoryview(previous_head)
        if previous_head != head:
            self._raise_mismatch(head, bytes(previous_head))
        yield from inbound

    def _raise_mismatch(self, head: bytes, previous_head: bytes) -> NoReturn:
        previous_name = self._names[self.rank - 1]
        raise Mismatch(
            f"members are out of step: {previous_name} does {_describe(previous_head)},"
            f" {self._names[self.rank]} does {_describe(head)}"
        )

    def _end(self, links: Links, error: BaseException) -> None:
        """Ends the ring after an error, because its streams stopped in the middle of an operation."""
        if isinstance(error, RoundOver):
            self._over = error
        else:
            self._over = RoundOver(f"it stopped during an operation: {one_line(error)}")
        self._links = None
        links.fail(self._over)


def _head(name: str, size: int = 0, kind: str = "") -> Callable[[int], bytes]:
    """Returns a function that packs an operation's head, given the number of operations before it."""

    def pack(done: int) -> bytes:
        return _HEAD.pack(_NUMBERS[name], done & 0xFFFFFFFF, size, kind.encode())

    return pack


def _describe(head: bytes) -> str:
    """Formats an operation's head for error messages."""
    number, done, size, kind = _HEAD.unpack(head)
    name = _OPERATIONS.get(number, "something else")
    details = {
        "all_reduce": f" of {size} x {kind.rstrip(bytes(1)).decode(errors='replace')}",
        "broadcast": f" from rank {size}",
    }.get(name, "")
    return f"{name}{details} as operation {done + 1}"


def _flat(buffer: Any) -> Array:
    if not isinstance(buffer, np.ndarray) or buffer.dtype not in _SUMMED:
        kind = getattr(buffer, "dtype", type(buffer).__name__)
        raise TypeError(f"all_reduce sums arrays of float32 or float64, not {kind}")
    if not buffer.flags.c_contiguous or not buffer.flags.writeable:
        raise TypeError("all_reduce needs a contiguous, writable array")
    return buffer.reshape(-1)
