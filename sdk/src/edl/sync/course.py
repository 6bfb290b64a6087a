"""How far the group is, as one member knows it; every member keeps it, so that any may lead next.

A step's records are entered in the book one exchange later than the step is made: only then is it
certain that every member has made it, and that no acknowledged record can be missing in the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from edl import wire
from edl.book import Book, Portion
from edl.sync.agreement import Hello
from edl.sync.shares import Plan


class Course:
    """Of one member; its thread's own, but for the book."""

    def __init__(self) -> None:
        self.book = Book()
        self.term = 0
        """The newest term in which this member was alike with all others; 0: it has only begun."""
        self.step = 0
        """Steps made."""
        self.records = 0
        self.skipped = 0
        self.made = ""
        """Plan of the newest step."""
        self.metrics: dict[str, float] = {}
        """Of the newest step."""
        self.flight: Plan | None = None
        """A step that was begun and not ended."""
        self._pending: tuple[list[Portion], dict[str, float]] | None = None
        self.in_a_row = 0
        """Steps left out since the last one that was not."""
        self._told: set[str] = set()
        """Tasks that other members may know of: those of the leader's book when it last told."""
        self._again: set[str] = set()
        """What was told as settled last: not every member may have heard it."""

    def hello(self, trainer: str, digest: int) -> Hello:
        """What it says of itself."""
        flight = "" if self.flight is None else self.flight.name
        return Hello(trainer, self.term, self.step, digest, self.made, flight)

    def advance(self, metrics: Mapping[str, float], *, skipped: bool = False) -> None:
        """The step in flight was made, by everybody who took part, this member included."""
        plan = self.flight
        if plan is None:
            return
        self.commit()
        self.step += 1
        self.records += plan.size
        self.skipped += skipped
        self.in_a_row = self.in_a_row + 1 if skipped else 0
        self.made, self.metrics = plan.name, dict(metrics)
        self.flight = None
        self._pending = ([span.portion for span in plan.spans], self._finite())

    @property
    def pending(self) -> bool:
        """Whether the newest step is not in the book yet."""
        return self._pending is not None

    def commit(self) -> bool:
        """Every member has made the newest step; whether a task was finished by it."""
        pending, self._pending = self._pending, None
        return pending is not None and self.book.trained(*pending)

    def leads(self) -> None:
        """This member leads from now on: the others may know what it knows."""
        self._told = self.book.known()

    def settled(self) -> list[str]:
        """The leader's: tasks of which nobody needs to know any more, since it was last asked.

        Each is told twice: the exchange may break when some have heard it and others have not.
        """
        known = self.book.known()
        gone = self._told - known
        told, self._again, self._told = gone | self._again, gone, known
        return sorted(told - known)

    def dump(self) -> wire.Json:
        """For newcomers, as it is once everybody has made the newest step."""
        book = Book()
        book.load(self.book.dump())
        if self._pending is not None:
            book.trained(*self._pending)
        return {**self.place_json(), "book": book.dump()}

    def place_json(self) -> wire.Json:
        """How far it is, for newcomers and checkpoints; see `place`."""
        names = ("step", "records", "skipped", "in_a_row", "made", "metrics")
        return {name: getattr(self, name) for name in names}

    def load(self, dumped: wire.Json) -> None:
        """Takes over what another member dumped; the book stays the same object."""
        self.place(dumped)
        self.book.load(dumped["book"])
        self.flight = self._pending = None
        self._again = set()

    def place(self, dumped: Mapping[str, Any]) -> None:
        """Takes over how far it is, and no book."""
        self.step, self.records = int(dumped["step"]), int(dumped["records"])
        self.skipped, self.in_a_row = int(dumped["skipped"]), int(dumped["in_a_row"])
        self.made, self.metrics = str(dumped["made"]), dict(dumped["metrics"])

    def forget(self, tasks: Iterable[str]) -> None:
        """The leader says that these are settled."""
        self._again = set(tasks)
        self.book.settle(self._again)

    def _finite(self) -> dict[str, float]:
        return {name: value for name, value in self.metrics.items() if math.isfinite(value)}
