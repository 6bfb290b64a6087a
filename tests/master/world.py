"""Trainers and masters in one thread, with every fault that can happen between them.

The trainers are the SDK's own lease table and calls; the master is the real ledger behind its real
journal on disk, and its snapshots. Faults of the network and kills are random.
"""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
from edl.errors import Refused, Unavailable
from edl.master import protocol
from edl.master.client import Client, WorkCalls, WorkRequest
from edl.master.leases import LeaseTable, Portion

from master.commands import Command, Describe, EndSettling, Expire, ExpireLeaked, from_json
from master.durable_ledger import DurableLedger
from master.errors import JournalError
from master.ledger import Ledger
from master.liveness import Liveness
from runtime.call_checks import Json, RefusedError
from tests.master.test_journal import full_disk

JOB = "digits"
SCOPE: Json = {"kinds": ["training"], "datasets": ["train"]}


class MasterSide:
    """The master's side: processes that follow each other in a directory, or in a new one."""

    def __init__(self, root: Path, description: Json) -> None:
        self._root = root
        self._place = 0
        self.snapshot: Json | None = None
        """The newest snapshot."""
        self.safe: dict[tuple[str, str], int] = {}
        self.durable_ledger = DurableLedger(Ledger(JOB, max_dropped_share=1.0), self._directory)
        self.call(Describe("train", description))
        self.store_snapshot()

    @property
    def _directory(self) -> Path:
        return self._root / str(self._place)

    @property
    def ledger(self) -> Ledger:
        """The ledger as it is now."""
        return self.durable_ledger.ledger

    def call(self, command: Command, *, full: bool = False) -> Json:
        """Executes, writes and answers, as the service does.

        Raises:
            Unavailable: The disk is full: nothing has changed.
        """
        try:
            answer = self.durable_ledger.execute(command)
            lines = self.durable_ledger.take_pending()
            if full and lines:
                newest = max(self._directory.glob("journal-*.log"), key=lambda path: path.name)
                with full_disk(7, newest):
                    self.durable_ledger.write(lines)
            self.durable_ledger.write(lines)
        except RefusedError as error:
            raise Refused(error.status, str(error), error.field) from error
        except JournalError as error:
            self.durable_ledger.reload()
            raise Unavailable(str(error)) from error
        return answer

    def store_snapshot(self) -> None:
        """Stores a snapshot."""
        self.snapshot = orjson.loads(orjson.dumps(self.ledger.dump()))
        self.safe = {
            (trainer.name, trainer.incarnation): trainer.call for trainer in self.ledger.trainers
        }

    def restart(self, *, cut: int = 0) -> None:
        """Kills the process and starts another; unanswered commands may be cut off the journal."""
        self._kill()
        if cut:
            newest = max(self._directory.glob("journal-*.log"), key=lambda path: path.name)
            with newest.open("ab") as file:
                file.write(b"0" * cut)
        self.durable_ledger = DurableLedger(Ledger(JOB, max_dropped_share=1.0), self._directory)

    def take_over(self) -> None:
        """Replaces pod and journal by new ones, which resume from the newest snapshot."""
        self._kill()
        self._place += 1
        self.durable_ledger = DurableLedger(Ledger(JOB, max_dropped_share=1.0), self._directory)
        assert self.snapshot is not None
        snapshot = orjson.loads(orjson.dumps(self.snapshot))
        self.durable_ledger.adopt(self.durable_ledger.load_next_generation(snapshot))
        self.safe = {}

    def close(self) -> None:
        """Releases the journal."""
        self.durable_ledger.close()

    def _kill(self) -> None:
        """Leaves what a killed process leaves: its files, unlocked."""
        journal = self.durable_ledger._journal  # noqa: SLF001 - the kernel closes what a process had open
        for descriptor in (journal._lock, journal._file):  # noqa: SLF001 - see above
            os.close(descriptor)


class Wire(Client):
    """A connection that loses, repeats and delays; calls of a dead process may arrive later."""

    def __init__(self, world: "World", name: str, incarnation: str) -> None:
        """Opens no connection: calls go to the world."""
        self._world = world
        self._identity = {"trainer": name, "incarnation": incarnation}
        self.incarnation = incarnation

    def join(self, done: Any = (), held_tasks: Any = (), lead: Any = None) -> protocol.JoinResponse:
        """See `Client.join`."""
        del lead  # these trainers train each for itself
        answer = self._send({"do": "join", "done": list(done), "held": list(held_tasks)})
        generation = self._world.master_side.ledger.generation
        return protocol.parse_join(
            {**answer, "job": JOB, "heartbeat_s": 1, "generation": generation}
        )

    def work(self, request: WorkRequest, answer_s: float = 0.0) -> protocol.WorkResponse:
        """See `Client.work`."""
        del answer_s
        call = {"want": request.want, "call": request.number, **request.scope}
        answer = self._send({"do": "work", **request.report.lists(), **call})
        master_side = self._world.master_side
        safe = master_side.safe.get((self._identity["trainer"], self.incarnation), 0)
        return protocol.parse_work(
            {**answer, "generation": master_side.ledger.generation, "safe": safe}
        )

    def _send(self, line: Json) -> Json:
        world, chance = self._world, self._world.chance
        command = from_json({**line, **self._identity})
        if chance.random() < world.trouble:
            kind = chance.choice(["lost", "full", "unanswered", "twice", "late"])
            if kind == "lost":
                raise Unavailable("it never arrived")
            if kind == "late":
                world.late.append(command)
                raise Unavailable("it arrives after its client has given up")
            answer = world.master_side.call(command, full=kind == "full")
            if kind == "twice":
                answer = world.master_side.call(command)
            if kind == "unanswered":
                raise Unavailable("the answer was lost")
            return answer
        return world.master_side.call(command)


@dataclass
class Trainer:
    """One process of a trainer."""

    name: str
    link: Wire
    lease_table: LeaseTable = field(default_factory=LeaseTable)
    joined: bool = False
    leases: list[protocol.Lease] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work_calls = WorkCalls(self.lease_table)

    @property
    def ready(self) -> list[protocol.Lease]:
        """The leases that it may train now."""
        self.leases = [lease for lease in self.leases if self.lease_table.is_active(lease)]
        back = [] if self.work_calls.unanswered is None else self.work_calls.unanswered.report.back
        return [lease for lease in self.leases if lease.ref not in back]


class World:
    """A job of three trainers, and how often each record was trained and acknowledged."""

    def __init__(self, root: Path, chance: Random, description: Json) -> None:
        self.chance = chance
        self.trouble = 0.2
        self.late: list[Command] = []
        self.liveness = Liveness(1.0)
        self.now_s = 0.0
        self.master_side = MasterSide(root, description)
        self.incarnations = 0
        self.trainers = {name: self._process(name) for name in ("a", "b", "c")}
        self.accepted_counts: Counter[str] = Counter()
        """Task -> how many trainers got the answer that theirs was accepted."""
        self.killed_records = 0
        """Records trained and not acknowledged by processes that were killed."""
        self.taken_over = 0

    def step(self) -> None:
        """Does one random thing."""
        act = self.chance.choices(
            [
                self.work,
                self.kill,
                self.restart,
                self.take_over,
                self.store_snapshot,
                self.expire,
                self.stale,
                self.beat,
            ],
            [40, 2, 2, 1, 4, 1, 3, 6],
        )[0]
        act()

    def work(self) -> None:
        """A trainer trains a task, or calls the master."""
        trainer = self.trainers[self.chance.choice("abc")]
        if trainer.ready and self.chance.random() < 0.6:
            lease = trainer.ready[0]
            trainer.lease_table.record_step([Portion(lease, lease.size)], {})
            return
        try:
            self._speak(trainer)
        except Unavailable:
            pass
        except Refused as error:
            if error.field == "trainer":
                trainer.joined = False
            elif error.field == "incarnation":
                self.killed_records += _unacknowledged(trainer)
                self.trainers[trainer.name] = self._process(trainer.name)
            elif error.field != "call":
                raise

    def kill(self) -> None:
        """Kills a trainer; another process takes its name."""
        name = self.chance.choice("abc")
        self.killed_records += _unacknowledged(self.trainers[name])
        self.trainers[name] = self._process(name)

    def restart(self) -> None:
        """Kills the master's process in the middle of a write."""
        self.master_side.restart(cut=self.chance.choice([0, 0, 5, 40]))

    def take_over(self) -> None:
        """Deletes the master's pod."""
        self.taken_over += 1
        self.master_side.take_over()
        if self.chance.random() < 0.5:
            self.master_side.call(EndSettling())

    def store_snapshot(self) -> None:
        """The master stores a snapshot."""
        self.master_side.store_snapshot()

    def expire(self) -> None:
        """The master expires a trainer, which may be alive."""
        name = self.chance.choice("abc")
        self.master_side.call(Expire({name: {}}))
        self.master_side.call(EndSettling())

    def beat(self) -> None:
        """A trainer sends a heartbeat."""
        trainer = self.trainers[self.chance.choice("abc")]
        ledger_trainer = self.master_side.ledger.trainers.find(trainer.name)
        if (
            not trainer.joined
            or ledger_trainer is None
            or ledger_trainer.incarnation != trainer.link.incarnation
        ):
            return
        reports = trainer.lease_table.held_entries()
        self.now_s += 1.0
        trained = {report["task"]: report["trained"] for report in reports}
        leaked = self.liveness.record_heartbeat(
            trainer.name, trained, self.now_s, ledger_trainer.leases
        )
        if leaked:
            self.master_side.call(ExpireLeaked({trainer.name: leaked}))
        ledger = self.master_side.ledger
        lost = [
            e["task"]
            for e in reports
            if not ledger.holds_lease(e["task"], e["attempt"], trainer.name)
        ]
        trainer.lease_table.drop_lost(reports, lost)

    def stale(self) -> None:
        """Delivers a call whose client has given up."""
        if self.late:
            command = self.late.pop(self.chance.randrange(len(self.late)))
            try:
                self.master_side.call(command)
            except Refused:
                return

    def finish(self) -> None:
        """Completes the job without any more faults."""
        self.trouble = 0.0
        self.master_side.call(EndSettling())
        for _ in range(5_000):
            if self.master_side.ledger.complete:
                return
            self.work()
            if self.chance.random() < 0.1:
                self.beat()
        raise AssertionError(f"no end: {self.master_side.ledger.dump()}")

    def _process(self, name: str) -> Trainer:
        self.incarnations += 1
        return Trainer(name, Wire(self, name, f"{name}-{self.incarnations}"))

    def _speak(self, trainer: Trainer) -> None:
        if not trainer.joined:
            leases = [
                {"task": h["task"], "attempt": h["attempt"]}
                for h in trainer.lease_table.held_entries()
            ]
            welcome = trainer.link.join(trainer.lease_table.not_yet_durable(), leases)
            trainer.work_calls.generation = welcome.generation
            trainer.joined = True
            trainer.lease_table.drop_lost(leases, welcome.lost)
        order = trainer.work_calls.unanswered or self._order(trainer)
        before = {entry["task"] for entry in order.report.done}
        brought = trainer.work_calls.send(trainer.link, order)
        trainer.leases += brought.leases
        for task in before - set(brought.refused):
            self.accepted_counts[task] += 1

    def _order(self, trainer: Trainer) -> WorkRequest:
        report = trainer.lease_table.report()
        if self.chance.random() < 0.1 and trainer.ready:
            report.back = [trainer.ready[-1].ref]
        return trainer.work_calls.new_request(report, SCOPE, want=self.chance.choice([0, 1, 3]))


def _unacknowledged(trainer: Trainer) -> int:
    return sum(entry["trained"] for entry in trainer.lease_table.held_entries())
