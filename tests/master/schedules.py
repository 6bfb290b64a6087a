"""Random schedules of faults of trainers, a master and its disk, determined by a seed.

The ledger and its journal are the real ones, on a real disk; network and processes are simulated:
messages are lost, repeated and late, masters die between any two writes, trainers vanish, and a
write fails in the middle because the disk is full (by the operating system's own limit).
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.fake_api import FakeApi
from master.commands import Describe, EndSettling, Expire, from_json
from master.durable_ledger import DurableLedger
from master.errors import JournalError
from master.fence import ConfigMapFence
from master.leases import ACCEPTED
from master.ledger import Ledger
from master.startup import open_ledger
from runtime.call_checks import Json, RefusedError
from tests.support.full_disks import files_up_to

RECORDS, STEP, EPOCHS = 23, 4, 2
SHAPE: Json = {"records": RECORDS, "task_records": STEP, "epochs": EPOCHS, "kind": "training"}
_MAX_STEPS = 4000


@dataclass
class Trainer:
    """A client like the SDK: it repeats a call until it is answered, and keeps what may be lost."""

    name: str
    incarnation: str
    joined: bool = False
    generation: int = 0
    number: int = 0
    open_call: Json | None = None
    leases: dict[str, int] = field(default_factory=dict)
    trained: set[str] = field(default_factory=set)
    beyond: list[tuple[int, Json]] = field(default_factory=list)
    """Acknowledgements that may not be in a snapshot, with the numbers of their calls."""
    over: bool = False

    def call(self, chance: random.Random) -> Json:
        """The call that is to be answered now."""
        if self.open_call is None:
            self.number += 1
            done = [
                {"task": t, "attempt": self.leases[t], "steps": 1} for t in sorted(self.trained)
            ]
            back = [t for t in self.leases if t not in self.trained and chance.random() < 0.1]
            for task in (*self.trained, *back):
                del self.leases[task]
            self.trained.clear()
            self.open_call = {
                "done": done,
                "back": [{"task": t, "attempt": 1} for t in back],
                "want": chance.randint(0, 2) if self.leases else 1,
                "call": self.number,
            }
        who = {"trainer": self.name, "incarnation": self.incarnation}
        return {"do": "work", **who, **self.open_call}

    def join(self) -> Json:
        """A join that reports what a new master may not know."""
        open_tasks = self.open_call["done"] if self.open_call else []
        leases = [{"task": t, "attempt": a} for t, a in self.leases.items()]
        leases += [{"task": entry["task"], "attempt": entry["attempt"]} for entry in open_tasks]
        who = {"trainer": self.name, "incarnation": self.incarnation}
        return {"do": "join", **who, "held": leases, "done": [entry for _, entry in self.beyond]}

    def receive(self, call: Json, answer: Json, safe: int) -> None:
        """Handles an answer, which may be a repeated one."""
        if self.open_call is None or call["call"] != self.number:
            return
        self.open_call = None
        results = answer["results"][: len(call["done"])]
        for entry, result in zip(call["done"], results, strict=True):
            if result == ACCEPTED:
                self.beyond.append((self.number, entry))
        self.beyond = [(n, entry) for n, entry in self.beyond if n > safe]
        self.leases |= {lease["task"]: lease["attempt"] for lease in answer["tasks"]}
        self.over = answer["state"] == "done" and not self.leases

    def entered(self, answer: Json, generation: int) -> None:
        """Handles the answer to a join."""
        self.joined, self.generation = True, generation
        for task in answer["lost"]:
            self.leases.pop(task, None)
            self.trained.discard(task)


@dataclass
class Faults:
    """The probability of each fault at each step."""

    lost: float = 0.1
    repeated: float = 0.1
    restarts: float = 0.02
    takeovers: float = 0.0
    full_disks: float = 0.0
    deaths: float = 0.02


class World:
    """One schedule: a master, its trainers, and random faults."""

    def __init__(self, directory: Path, seed: int, faults: Faults) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - schedules, not secrets
        self.faults = Faults(0, 0, 0, 0, 0, 0)
        self.api = FakeApi()
        self.directory = directory
        self.masters = 0
        self.safe: dict[tuple[str, str], int] = {}
        self.accepted: Counter[tuple[str, int]] = Counter()
        """Task with attempt -> durable answers "accepted"; with takeovers, those that arrived."""
        self.unknowable: set[str] = set()
        """Tasks that were acknowledged, but not in a snapshot, when their trainer died."""
        self.late: list[tuple[Trainer, Json]] = []
        self.pending: list[tuple[Trainer, Json, Json]] = []
        """Calls that were executed and are not answered, because they are not on the disk."""
        self.durable_ledger = self._open(new=True)
        self.trainers = [self._trainer(f"t-{i}") for i in range(3)]
        self.durable_ledger.execute(Describe("train", self._shape()))
        self._write()
        self._store_snapshot()
        self.faults = faults

    def _shape(self) -> Json:
        seed = self.chance.choice([None, 7])
        return {**SHAPE, "shuffle_seed": seed, "overlap": self.chance.random() < 0.3}

    def run(self) -> None:
        """Runs to the end: first with faults, then without."""
        for step in range(_MAX_STEPS):
            if self.durable_ledger.ledger.complete and not self.pending:
                break
            if step == _MAX_STEPS // 2:
                self.faults = Faults(0, 0, 0, 0, 0, 0)
            self._step()
        self._write()

    def close(self) -> None:
        """Releases the journal."""
        self.durable_ledger.close()

    # -- what happens ------------------------------------------------------------------------

    def _step(self) -> None:
        chance, faults = self.chance, self.faults
        for likely, act in (
            (faults.restarts, self._restart),
            (faults.takeovers, self._take_over),
            (faults.deaths, self._die),
            (0.25, self._write),
            (0.05, self._store_snapshot),
            (0.02, self._expire),
        ):
            if chance.random() < likely:
                act()
        if self.late and chance.random() < faults.repeated:
            self._deliver(*self.late.pop(chance.randrange(len(self.late))))
        trainer = chance.choice(self.trainers)
        trainer.trained |= {t for t in trainer.leases if chance.random() < 0.5}
        if not trainer.joined:
            self._join(trainer)
            return
        call = trainer.call(chance)
        if chance.random() < faults.repeated:
            self.late.append((trainer, call))
        if chance.random() >= faults.lost:
            self._deliver(trainer, call)

    def _deliver(self, trainer: Trainer, call: Json) -> None:
        """Delivers a call to the master, which answers once it is on the disk."""
        try:
            answer = self.durable_ledger.execute(from_json(call))
        except RefusedError as refusal:
            if trainer in self.trainers and refusal.field == "trainer":
                trainer.joined = False
            return
        waits = answer["state"] == "wait" and not answer["results"] and call["want"]
        if waits and self.chance.random() < 0.5:
            request = {k: call[k] for k in ("trainer", "incarnation", "want", "call")}
            answer = self.durable_ledger.execute(from_json({"do": "more", **request}))
        self.pending.append((trainer, call, answer))

    def _join(self, trainer: Trainer) -> None:
        answer = self.durable_ledger.execute(from_json(trainer.join()))
        self._write()
        ledger = self.durable_ledger.ledger
        if ledger.trainers.find(trainer.name) is None or trainer.name in ledger.settling:
            return  # the disk was full
        if self.chance.random() >= self.faults.lost:
            trainer.entered(answer, ledger.generation)

    def _write(self) -> None:
        pending, self.pending = self.pending, []
        lines = self.durable_ledger.take_pending()
        try:
            with self._full_disk(sum(map(len, lines))):
                self.durable_ledger.write(lines)
        except JournalError:
            self.durable_ledger.reload()
            return
        for trainer, call, answer in pending:
            arrives = trainer in self.trainers and self.chance.random() >= self.faults.lost
            if arrives or not self.faults.takeovers:
                self._count_accepted(trainer, call, answer)
            if arrives:
                trainer.receive(call, answer, self._safe_of(trainer))

    def _count_accepted(self, trainer: Trainer, call: Json, answer: Json) -> None:
        results = answer["results"][: len(call["done"])]
        for entry, result in zip(call["done"], results, strict=True):
            if result == ACCEPTED:
                self.accepted[entry["task"], entry["attempt"]] += 1
                if trainer not in self.trainers:  # its answer is never received
                    self.unknowable.add(entry["task"])

    @contextmanager
    def _full_disk(self, size: int) -> Iterator[None]:
        """Sometimes limits the size of files, so that a part of the write at most succeeds."""
        if not size or self.chance.random() >= self.faults.full_disks:
            yield
            return
        used = sum(p.stat().st_size for p in [max(self._home.glob("journal-*"), key=_number)])
        with files_up_to(used + self.chance.randrange(size)):
            yield

    def _store_snapshot(self) -> None:
        """Stores a snapshot in the cluster."""
        ledger = self.durable_ledger.ledger
        self.fence.write(ledger.generation, ledger.dump(), "")
        self.safe = {
            (trainer.name, trainer.incarnation): trainer.call for trainer in ledger.trainers
        }
        for trainer in self.trainers:
            safe = self._safe_of(trainer)
            trainer.beyond = [(n, entry) for n, entry in trainer.beyond if n > safe]

    def _safe_of(self, trainer: Trainer) -> int:
        return self.safe.get((trainer.name, trainer.incarnation), 0)

    def _restart(self) -> None:
        """Kills the master in the middle of a write; the next one has the same disk."""
        torn = b"".join(self.durable_ledger.take_pending())
        self._connections_break()
        self.durable_ledger.close()
        newest = max(self._home.glob("journal-*"), key=_number)
        with newest.open("ab") as file:
            file.write(torn[: self.chance.randint(0, len(torn))])
        self.durable_ledger = self._open(new=False)
        self.safe = {}

    def _take_over(self) -> None:
        """Deletes the pod, and its disk with it."""
        self._connections_break()
        self.durable_ledger.take_pending()
        self.durable_ledger.close()
        self.durable_ledger = self._open(new=True)
        self.safe = {}
        for trainer in self.trainers:
            trainer.joined = False
        if not self.faults.deaths:
            for trainer in self.trainers:
                self._join(trainer)
        self.durable_ledger.execute(EndSettling())

    def _connections_break(self) -> None:
        self.late.clear()
        self.pending.clear()

    def _die(self) -> None:
        """Kills a trainer; another process gets its name."""
        place = self.chance.randrange(len(self.trainers))
        dead = self.trainers[place]
        self.unknowable |= {entry["task"] for _, entry in dead.beyond}
        if dead.open_call is not None:
            self.unknowable |= {entry["task"] for entry in dead.open_call["done"]}
        self.late = [(sender, call) for sender, call in self.late if sender is not dead]
        self.trainers[place] = self._trainer(dead.name)

    def _expire(self) -> None:
        """Expires a trainer that is alive."""
        self.durable_ledger.execute(Expire({self.chance.choice(self.trainers).name: {}}))

    # -- making ------------------------------------------------------------------------------

    def _trainer(self, name: str) -> Trainer:
        return Trainer(name, f"i-{self.chance.randrange(1 << 60)}")

    def _open(self, *, new: bool) -> DurableLedger:
        self.masters += new
        self._home = self.directory / f"pod-{self.masters}"
        self.fence = ConfigMapFence(self.api, "ml", "digits-master", f"pod-{self.masters}")
        return open_ledger(Ledger("digits"), self._home, self.fence)

    # -- what must be true at the end ----------------------------------------------------------

    def check(self) -> None:
        """Checks that every record is acknowledged exactly once in each epoch."""
        progress = self.durable_ledger.ledger.datasets["train"].progress()
        assert progress["complete"]
        assert progress["done_records"] == RECORDS * EPOCHS
        assert progress["leased_tasks"] == progress["returned_tasks"] == 0
        by_task = Counter(task for task, _ in self.accepted)
        again = {task for task, count in by_task.items() if count > 1}
        unseen = again - self.unknowable
        assert _records(unseen) <= self.durable_ledger.ledger.trained_again_records


def _records(tasks: set[str]) -> int:
    """Number of records of some tasks; the last task of an epoch is shorter."""
    starts = [int(task.rsplit("/", 1)[1]) * STEP for task in tasks]
    return sum(min(STEP, RECORDS - start) for start in starts)


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2])
