"""Calls for work: one at a time, numbered, and the same one again until its answer is known.

So an answer that gets lost on its way leaves no task leased to somebody who does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edl import wire
from edl.book import Book
from edl.client import Client
from edl.connection import ANSWER_S
from edl.errors import Refused, Unavailable


@dataclass(frozen=True)
class Order:
    """A call for work, to be repeated alike."""

    number: int
    report: wire.Report
    want: int
    wait_s: float
    scope: wire.Json
    """Which tasks: `kinds` and `datasets`."""


@dataclass(frozen=True)
class Brought:
    """What a call brought, once the book knows it."""

    leases: tuple[wire.Lease, ...]
    refused: list[str]
    """Tasks whose reports came too late."""
    state: str
    again_s: float | None


class Calls:
    """Of one incarnation. Whoever sends needs the turn."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._lock = threading.Lock()
        self._number = 0
        self.generation = 0
        """Of the newest master that was joined."""
        self.open: Order | None = None
        """Sent, and its answer is not known."""

    @contextmanager
    def turn(self, timeout_s: float) -> Iterator[bool]:
        """The right to send; False where another did not give it back in time."""
        mine = self._lock.acquire(timeout=timeout_s)
        try:
            yield mine
        finally:
            if mine:
                self._lock.release()

    def order(
        self, report: wire.Report, scope: wire.Json, want: int = 0, wait_s: float = 0.0
    ) -> Order:
        """A new call."""
        self._number += 1
        return Order(self._number, report, want, wait_s, scope)

    def send(self, client: Client, order: Order, answer_s: float = ANSWER_S) -> Brought:
        """Sends a call, new or again, and enters its answer in the book.

        Raises:
            Unavailable: No answer; the call stays open.
            Refused: The master will not have it; it is open no more.
        """
        self.open = order
        scope = {**order.scope, "call": order.number}
        try:
            answer = client.work(
                order.report, want=order.want, wait_s=order.wait_s, scope=scope, answer_s=answer_s
            )
        except Refused:
            self.open = None
            raise
        if answer.generation < self.generation:
            raise Unavailable("a master that was replaced still answers")
        self.open = None
        refused = self._book.answered(order.report, answer.results, order.number)
        self._book.safe(order.number if answer.safe is None else answer.safe)
        leases = tuple(lease for lease in answer.leases if self._book.take(lease))
        return Brought(leases, refused, answer.state, answer.again_s)
