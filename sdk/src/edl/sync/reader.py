"""Reads a member's records ahead of its steps, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import Any, Union

from edl import clock
from edl.errors import RecordError, RoundOver, one_line
from edl.sources.base import Source
from edl.sync.shares import Plan, Span
from edl.wire import Lease

_AHEAD = 4
"""Steps that take long to read, and so much memory."""
_QUICK_S = 0.001
"""What is read faster is small: all that is planned is read in one go, which wakes threads less."""
_LOOK_S = 0.2


@dataclass(frozen=True)
class Unreadable:
    """A task that this member cannot read."""

    lease: Lease
    why: str
    record: int | None


@dataclass(frozen=True)
class Piece:
    """One micro-batch that this member is to compute."""

    index: int
    size: int
    records: Any


Read = Union[list[Piece], Unreadable]


class Reader:
    """Of one round: steps go in as they are planned, and come out in that order."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._orders: queue.SimpleQueue[tuple[Plan, list[tuple[int, tuple[Span, ...]]]] | None]
        self._orders = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[Plan, Read, bool]] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(_AHEAD):
            self._room.put(None)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edl-sync-reader", daemon=True)
        self._thread.start()

    def order(self, plan: Plan, mine: list[tuple[int, tuple[Span, ...]]]) -> None:
        """Reads these micro-batches of a step, after those ordered before."""
        self._orders.put((plan, mine))

    def take(self, plan: Plan) -> Read:
        """What was ordered of this step.

        Raises:
            RoundOver: It was not ordered: closed meanwhile.
        """
        while not self._closed.is_set():
            try:
                found, read, quick = self._ready.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if not quick:
                self._room.put(None)
            if found is plan:
                return read
        raise RoundOver("the reader was closed")

    def close(self, join_s: float) -> None:
        """Ends the thread; a read under way ends by itself."""
        self._closed.set()
        self._orders.put(None)
        self._room.put(None)
        self._thread.join(join_s)

    def _run(self) -> None:
        for plan, mine in iter(self._orders.get, None):
            self._room.get()
            if self._closed.is_set():
                return
            began_s = clock.monotonic_s()
            read = self._read(mine)
            quick = clock.monotonic_s() - began_s < _QUICK_S
            if quick:
                self._room.put(None)
            self._ready.put((plan, read, quick))

    def _read(self, mine: list[tuple[int, tuple[Span, ...]]]) -> Read:
        pieces = []
        for index, spans in mine:
            at = spans[0]
            try:
                blocks = []
                for at in spans:
                    file, end = at.lease.file, at.start + at.count
                    blocks.append(self._source.read(file, at.start, end))
                records = self._source.batch(blocks)
            except RecordError as error:
                return Unreadable(at.lease, error.why, error.record)
            except Exception as error:  # noqa: BLE001 - a program's own reader may raise anything
                return Unreadable(at.lease, one_line(error), None)
            pieces.append(Piece(index, sum(span.count for span in spans), records))
        return pieces
