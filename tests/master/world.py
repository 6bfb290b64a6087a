"""Trainers and masters in one thread, between which everything goes wrong that can.

The trainers are the SDK's own book and calls; the master is the real ledger behind its real
journal on disk, and its snapshots. What lies between, and when anybody dies, chance decides.
"""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
from edl import wire
from edl.book import Book, Portion
from edl.calls import Calls, Order
from edl.client import Client
from edl.errors import Refused, Unavailable

from master.books import Books
from master.errors import JournalError, RefusedError
from master.ledger import Ledger
from master.liveness import Liveness
from tests.master.test_journal import full_disk

Json = dict[str, Any]
JOB = "digits"
SCOPE: Json = {"kinds": ["training"], "datasets": ["train"]}


class Desk:
    """The master's side: one process after another over a directory, or a new one each takeover."""

    def __init__(self, root: Path, description: Json) -> None:
        self._root = root
        self._place = 0
        self.kept: Json | None = None
        """The newest snapshot."""
        self.safe: dict[tuple[str, str], int] = {}
        self.books = Books(Ledger(JOB, most_dropped=1000), self._directory)
        self.call({"do": "describe", "name": "train", "shape": description})
        self.keep()

    @property
    def _directory(self) -> Path:
        return self._root / str(self._place)

    @property
    def ledger(self) -> Ledger:
        """The books as they are."""
        return self.books.ledger

    def call(self, command: Json, *, full: bool = False) -> Json:
        """Carries out, writes, answers; as the service does.

        Raises:
            Unavailable: The disk is full: nothing has happened.
        """
        try:
            answer = self.books.execute(command)
            lines = self.books.take()
            if full and lines:
                newest = max(self._directory.glob("journal-*.log"), key=lambda path: path.name)
                with full_disk(7, newest):
                    self.books.write(lines)
            self.books.write(lines)
        except RefusedError as error:
            raise Refused(error.status, str(error), error.named) from error
        except JournalError as error:
            self.books.restore()
            raise Unavailable(str(error)) from error
        return answer

    def keep(self) -> None:
        """A snapshot is stored."""
        self.kept = orjson.loads(orjson.dumps(self.ledger.dump()))
        self.safe = {(one.name, one.incarnation): one.call for one in self.ledger.members}

    def restart(self, *, cut: int = 0) -> None:
        """The process is killed and started again; what nobody was told may be cut off."""
        self._kill()
        if cut:
            newest = max(self._directory.glob("journal-*.log"), key=lambda path: path.name)
            with newest.open("ab") as file:
                file.write(b"0" * cut)
        self.books = Books(Ledger(JOB, most_dropped=1000), self._directory)

    def take_over(self) -> None:
        """The pod and its journal are gone: another goes on from the newest snapshot."""
        self._kill()
        self._place += 1
        self.books = Books(Ledger(JOB, most_dropped=1000), self._directory)
        assert self.kept is not None
        self.books.take_over(orjson.loads(orjson.dumps(self.kept)))
        self.safe = {}

    def close(self) -> None:
        """Gives everything back."""
        self.books.close()

    def _kill(self) -> None:
        """What a killed process leaves: its files, and no lock on them."""
        journal = self.books._journal  # noqa: SLF001 - the kernel closes what a process had open
        for descriptor in (journal._lock, journal._file):  # noqa: SLF001 - see above
            os.close(descriptor)


class Wire(Client):
    """A connection that loses, repeats and delays; calls of a dead process may come later."""

    def __init__(self, world: "World", name: str, incarnation: str) -> None:
        """Opens no connection: the world is at the other end."""
        self._world = world
        self._who = {"trainer": name, "incarnation": incarnation}
        self.incarnation = incarnation

    def join(self, done: Any = (), held: Any = (), lead: Any = None) -> wire.Welcome:
        """See `Client.join`."""
        del lead  # these trainers train each for itself
        answer = self._send({"do": "join", "done": list(done), "held": list(held)})
        generation = self._world.desk.ledger.generation
        return wire.welcome({**answer, "job": JOB, "heartbeat_s": 1, "generation": generation})

    def work(
        self,
        report: wire.Report,
        *,
        want: int = 0,
        wait_s: float = 0.0,
        scope: Json,
        answer_s: float = 0.0,
    ) -> wire.Work:
        """See `Client.work`."""
        del wait_s, answer_s
        answer = self._send({"do": "work", **report.lists(), "want": want, **scope})
        desk = self._world.desk
        safe = desk.safe.get((self._who["trainer"], self.incarnation), 0)
        return wire.work({**answer, "generation": desk.ledger.generation, "safe": safe})

    def _send(self, command: Json) -> Json:
        world, chance = self._world, self._world.chance
        command = {**command, **self._who}
        if chance.random() < world.trouble:
            kind = chance.choice(["lost", "full", "unanswered", "twice", "late"])
            if kind == "lost":
                raise Unavailable("it never arrived")
            if kind == "late":
                world.late.append(command)
                raise Unavailable("it arrives when nobody waits for it any more")
            answer = world.desk.call(command, full=kind == "full")
            if kind == "twice":
                answer = world.desk.call(command)
            if kind == "unanswered":
                raise Unavailable("the answer was lost")
            return answer
        return world.desk.call(command)


@dataclass
class Trainer:
    """One process of a trainer."""

    name: str
    link: Wire
    book: Book = field(default_factory=Book)
    joined: bool = False
    leases: list[wire.Lease] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.calls = Calls(self.book)

    @property
    def ready(self) -> list[wire.Lease]:
        """What it may train now."""
        self.leases = [lease for lease in self.leases if self.book.holds(lease)]
        back = [] if self.calls.open is None else self.calls.open.report.back
        return [lease for lease in self.leases if lease.ref not in back]


class World:
    """A job of three trainers, and how often each record was trained and acknowledged."""

    def __init__(self, root: Path, chance: Random, description: Json) -> None:
        self.chance = chance
        self.trouble = 0.2
        self.late: list[Json] = []
        self.liveness = Liveness(1.0)
        self.now_s = 0.0
        self.desk = Desk(root, description)
        self.incarnations = 0
        self.trainers = {name: self._process(name) for name in ("a", "b", "c")}
        self.told: Counter[str] = Counter()
        """Task -> how many trainers were told that theirs was accepted."""
        self.killed_records = 0
        """Trained and not acknowledged, by processes that were killed."""
        self.taken_over = 0

    def step(self) -> None:
        """One thing happens."""
        act = self.chance.choices(
            [
                self.work,
                self.kill,
                self.restart,
                self.take_over,
                self.keep,
                self.expire,
                self.stale,
                self.beat,
            ],
            [40, 2, 2, 1, 4, 1, 3, 6],
        )[0]
        act()

    def work(self) -> None:
        """A trainer trains a task, or speaks with the master."""
        one = self.trainers[self.chance.choice("abc")]
        if one.ready and self.chance.random() < 0.6:
            lease = one.ready[0]
            one.book.trained([Portion(lease, lease.size)], {})
            return
        try:
            self._speak(one)
        except Unavailable:
            pass
        except Refused as error:
            if error.field == "trainer":
                one.joined = False
            elif error.field == "incarnation":
                self.killed_records += _unacknowledged(one)
                self.trainers[one.name] = self._process(one.name)
            elif error.field != "call":
                raise

    def kill(self) -> None:
        """A trainer dies; another process takes its name."""
        name = self.chance.choice("abc")
        self.killed_records += _unacknowledged(self.trainers[name])
        self.trainers[name] = self._process(name)

    def restart(self) -> None:
        """The master's process dies in the middle of a write."""
        self.desk.restart(cut=self.chance.choice([0, 0, 5, 40]))

    def take_over(self) -> None:
        """The master's pod is gone."""
        self.taken_over += 1
        self.desk.take_over()
        if self.chance.random() < 0.5:
            self.desk.call({"do": "settle"})

    def keep(self) -> None:
        """The master stores a snapshot."""
        self.desk.keep()

    def expire(self) -> None:
        """The master has not heard of a trainer, rightly or not."""
        name = self.chance.choice("abc")
        self.desk.call({"do": "expire", "trainers": {name: {}}, "stuck": {}})
        self.desk.call({"do": "settle"})

    def beat(self) -> None:
        """A trainer tells what it holds."""
        one = self.trainers[self.chance.choice("abc")]
        known = self.desk.ledger.members.find(one.name)
        if not one.joined or known is None or known.incarnation != one.link.incarnation:
            return
        held = one.book.held()
        self.now_s += 1.0
        leaked = self.liveness.beat(one.name, held, self.now_s, known.held)
        if leaked:
            self.desk.call({"do": "expire", "leaked": {one.name: leaked}})
        ledger = self.desk.ledger
        lost = [e["task"] for e in held if not ledger.holder(e["task"], e["attempt"], one.name)]
        one.book.lose(held, lost)

    def stale(self) -> None:
        """A call arrives that nobody waits for any more."""
        if self.late:
            command = self.late.pop(self.chance.randrange(len(self.late)))
            try:
                self.desk.call(command)
            except Refused:
                return

    def finish(self) -> None:
        """No more trouble: the job comes to its end."""
        self.trouble = 0.0
        self.desk.call({"do": "settle"})
        for _ in range(5_000):
            if self.desk.ledger.complete:
                return
            self.work()
            if self.chance.random() < 0.1:
                self.beat()
        raise AssertionError(f"no end: {self.desk.ledger.dump()}")

    def _process(self, name: str) -> Trainer:
        self.incarnations += 1
        return Trainer(name, Wire(self, name, f"{name}-{self.incarnations}"))

    def _speak(self, one: Trainer) -> None:
        if not one.joined:
            held = [{"task": h["task"], "attempt": h["attempt"]} for h in one.book.held()]
            welcome = one.link.join(one.book.unsafe(), held)
            one.calls.generation = welcome.generation
            one.joined = True
            one.book.lose(held, welcome.lost)
        order = one.calls.open or self._order(one)
        before = {entry["task"] for entry in order.report.done}
        brought = one.calls.send(one.link, order)
        one.leases += brought.leases
        for task in before - set(brought.refused):
            self.told[task] += 1

    def _order(self, one: Trainer) -> Order:
        report = one.book.report()
        if self.chance.random() < 0.1 and one.ready:
            report.back = [one.ready[-1].ref]
        return one.calls.order(report, SCOPE, want=self.chance.choice([0, 1, 3]))


def _unacknowledged(one: Trainer) -> int:
    return sum(entry["trained"] for entry in one.book.held())
