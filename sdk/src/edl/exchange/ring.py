"""The ring of one round: what an engine calls."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from edl.errors import Mismatch, RoundOver, one_line
from edl.exchange import bundle, forming, handshake, operations
from edl.exchange.interrupt import Interrupt
from edl.exchange.links import Links
from edl.exchange.listener import Listener
from edl.exchange.operations import Array, Inbound, Out, Place
from edl.exchange.waiter import OnWait, Waiter

_HEAD = struct.Struct("!B3xIQ8s")
_OPERATIONS = {1: "all_reduce", 2: "gather", 3: "broadcast", 4: "barrier"}
_NUMBERS = {name: number for number, name in _OPERATIONS.items()}
_SUMMED = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


class Ring:
    """All members call the same operations in the same order; one thread uses it.

    After `RoundOver` it is of no use: close it and connect the next round's. Members may then
    differ in whether the last operation was completed, and a buffer in it may hold anything.
    """

    def __init__(self, place: handshake.Place, names: Sequence[str], waiter: Waiter) -> None:
        self.number, self.rank, self.world = place
        self._place = Place(place.rank, place.world)
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
    ) -> Ring:
        """Blocks until both neighbours are there.

        Args:
            listener: This process', whose address the others were told.
            addresses: `host:port` of all members, in order of rank.
            rank: This member's.
            number: Of the round.
            key: The job's token; members that do not know it are refused.
            interrupt: Ends this and every later call of the ring at once.
            on_wait: Told since when a call is blocked, once that is longer than 0.25 s, and None
                when it is not any more. Called by the thread that is blocked.

        Raises:
            RoundOver: A neighbour is gone or at a later round, or it was interrupted.
            ValueError: The rank is not one of the members, or the key is empty.
        """
        if not 0 <= rank < len(addresses):
            raise ValueError(f"rank {rank} is not one of {len(addresses)} members")
        if not key:
            raise ValueError("the exchange needs the job's token as its key")
        place = handshake.Place(number, rank, len(addresses))
        names = [f"rank {one} ({address})" for one, address in enumerate(addresses)]
        ring = cls(place, names, Waiter(interrupt, on_wait))
        if ring.world > 1:
            after = (rank + 1) % ring.world
            pair = forming.form(
                listener, place, key, ring._waiter, names=names, address=addresses[after]
            )
            ring._links = Links(pair, ring._waiter, names, rank)
            ring._scratch = np.empty(operations.SCRATCH_BYTES, np.uint8)
        return ring

    @property
    def on_wait(self) -> OnWait | None:
        """Told when a call is blocked, see `connect`."""
        return self._waiter.on_wait

    @on_wait.setter
    def on_wait(self, act: OnWait | None) -> None:
        self._waiter.on_wait = act

    def all_reduce(self, buffer: Array) -> None:
        """Sums the members' buffers, in place; all end with the same bits.

        Args:
            buffer: float32 or float64, contiguous, as long as the others'.

        Raises:
            Mismatch: Another member's buffer is of another size or type.
            RoundOver: The round is over.
            TypeError: The buffer cannot be summed in place.
        """
        flat = _flat(buffer)
        scratch = self._scratch.view(flat.dtype)

        def begin(out: Out) -> Inbound:
            return operations.all_reduce(flat, scratch, self._place, out)

        self._run(_head("all_reduce", flat.size, flat.dtype.str), begin)

    def gather(self, payload: bytes) -> list[bytes]:
        """Everybody's payload, in order of rank.

        Args:
            payload: 1 MiB at most; lengths may differ.

        Raises:
            RoundOver: The round is over.
            ValueError: The payload is too long.
        """
        return self._gather("gather", payload)

    def barrier(self) -> None:
        """Returns when all members have called it.

        Raises:
            RoundOver: The round is over.
        """
        self._gather("barrier", b"")

    def broadcast(
        self, arrays: Sequence[Array] | None, meta: bytes, source: int
    ) -> tuple[bytes, list[Array]]:
        """Brings the source's arrays and bytes to everybody.

        Args:
            arrays: The source's, of plain numpy types; others' are ignored.
            meta: The source's; others' is ignored.
            source: Rank whose they are.

        Returns:
            The source's bytes, and its arrays: its own where this is the source, else new ones.

        Raises:
            RoundOver: The round is over.
            TypeError: An array holds objects or records.
            ValueError: There is no such rank, or it brings nothing.
        """
        if not 0 <= source < self.world:
            raise ValueError(f"source {source} is not one of {self.world} members")
        found, described = bundle.Received(), b""
        if source == self.rank:
            if arrays is None:
                raise ValueError("the source of a broadcast must bring arrays, if only none: []")
            found.meta, found.arrays = meta, list(arrays)
            described = bundle.describe(meta, found.arrays)
        last = (self.rank + 1) % self.world == source

        def begin(out: Out) -> Inbound:
            if source != self.rank:
                return found.inbound(out, last=last)
            bundle.send(described, meta, found.arrays, out)
            return iter(())

        self._run(_head("broadcast", source), begin)
        return found.meta, found.arrays

    def receive(self, source: int) -> tuple[bytes, list[Array]]:
        """A broadcast of somebody else's; raises what `broadcast` raises."""
        return self.broadcast(None, b"", source)

    def close(self) -> None:
        """Leaves the round; the others' next operation ends with `RoundOver`."""
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
            raise ValueError(f"{text}: {operations.PAYLOAD_BYTES} are allowed")
        found = [payload] * self.world

        def begin(out: Out) -> Inbound:
            return operations.gather(payload, found, self._place, out)

        self._run(_head(name), begin)
        return found

    def _run(self, head: Callable[[int], bytes], begin: Callable[[Out], Inbound]) -> None:
        if self._over is not None:
            raise type(self._over)(str(self._over))
        links = self._links
        if links is None:
            self._waiter.check()
            return
        mine, out = head(links.done), deque[memoryview]()
        out.append(memoryview(mine))
        inbound = begin(out)
        try:
            links.carry(out, self._checked(mine, inbound))
        except BaseException as error:
            self._end(links, error)
            raise
        finally:
            self._waiter.moved()

    def _checked(self, mine: bytes, inbound: Inbound) -> Inbound:
        """First of all both must be about to do the same."""
        theirs = bytearray(_HEAD.size)
        yield memoryview(theirs)
        if theirs != mine:
            self._mismatch(mine, bytes(theirs))
        yield from inbound

    def _mismatch(self, mine: bytes, theirs: bytes) -> NoReturn:
        before = self._names[self.rank - 1]
        raise Mismatch(
            f"members are out of step: {before} does {_told(theirs)},"
            f" {self._names[self.rank]} does {_told(mine)}"
        )

    def _end(self, links: Links, error: BaseException) -> None:
        """Whatever ended the operation, the streams are cut in the middle."""
        if isinstance(error, RoundOver):
            self._over = error
        else:
            self._over = RoundOver(f"it stopped within an operation: {one_line(error)}")
        self._links = None
        links.fail(self._over)


def _head(name: str, size: int = 0, kind: str = "") -> Callable[[int], bytes]:
    """What goes before an operation, once it is known how many were before it."""

    def pack(done: int) -> bytes:
        return _HEAD.pack(_NUMBERS[name], done & 0xFFFFFFFF, size, kind.encode())

    return pack


def _told(head: bytes) -> str:
    """In words, for people."""
    number, done, size, kind = _HEAD.unpack(head)
    name = _OPERATIONS.get(number, "something else")
    what = {
        "all_reduce": f" of {size} x {kind.rstrip(bytes(1)).decode(errors='replace')}",
        "broadcast": f" from rank {size}",
    }.get(name, "")
    return f"{name}{what} as operation {done + 1}"


def _flat(buffer: Any) -> Array:
    if not isinstance(buffer, np.ndarray) or buffer.dtype not in _SUMMED:
        kind = getattr(buffer, "dtype", type(buffer).__name__)
        raise TypeError(f"all_reduce sums arrays of float32 or float64, not {kind}")
    if not buffer.flags.c_contiguous or not buffer.flags.writeable:
        raise TypeError("all_reduce needs a contiguous array that can be written to")
    return buffer.reshape(-1)
