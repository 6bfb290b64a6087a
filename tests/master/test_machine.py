"""The ledger against a plain model that stores every task."""

from collections import Counter
from typing import Any

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from master.commands import Describe, Expire, Join, Leave, from_json
from master.dataset import FAILURE_BUDGET, PATIENT_BUDGET
from master.failures import OUTAGE_TASKS
from master.ledger import Ledger
from runtime.call_checks import Json
from tests.master.ledger_calls import end_pauses, ref, shape, who
from tests.support.strategies import THOROUGH

NAMES = st.sampled_from(["a", "b", "c"])
TASKS, EPOCHS = 5, 2


class LedgerMachine(RuleBasedStateMachine):
    """Trainers join, leave, work and fail; the model has one entry for each task of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger("digits", max_dropped_share=1.0)
        described = shape(records=10 * TASKS, epochs=EPOCHS, shuffle_seed=1)
        self.ledger.execute(Describe("train", described))
        self.leases: dict[str, dict[str, int]] = {}
        self.done_counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.wave: set[str] = set()
        """Tasks that failed since one was done."""
        self.dropped_tasks: set[str] = set()
        self.dropped_indexes: set[str] = set()
        self.attempts: dict[str, int] = {}
        self.old: list[tuple[str, Json]] = []
        self.dumped: Json = {}
        self.written = b""

    def _over(self, task: str) -> bool:
        return bool(self.done_counts[task]) or task in self.dropped_tasks

    def _fail(self, task: str) -> None:
        """A task has more failures in an outage, and one if it was dropped in an earlier epoch."""
        self.wave.add(task)
        outage = len(self.wave) >= OUTAGE_TASKS and any(self.done_counts.values())
        self.failures[task] += 1
        index, budget = task.split("/")[2], PATIENT_BUDGET if outage else FAILURE_BUDGET
        if self.failures[task] >= (1 if index in self.dropped_indexes else budget):
            self.wave.discard(task)
            self.dropped_tasks.add(task)
            self.dropped_indexes.add(index)

    def _work(self, name: str, **fields: Any) -> Json:
        return self.ledger.execute(from_json({"do": "work", **who(name), "want": 0, **fields}))

    @rule(name=NAMES)
    def join(self, name: str) -> None:
        """Joins; the same incarnation may join again and keeps its leases."""
        self.ledger.execute(Join(**who(name)))
        self.leases.setdefault(name, {})

    @rule(name=NAMES, want=st.integers(1, 4))
    def lease(self, name: str, want: int) -> None:
        """Leases free tasks: of one epoch, with greater attempts than all earlier ones."""
        if name not in self.leases:
            return
        leased_tasks = {task for leases in self.leases.values() for task in leases}
        answer = self._work(name, want=want)
        for lease in answer["tasks"]:
            task = lease["task"]
            assert task not in leased_tasks
            assert not self._over(task)
            assert lease["attempt"] > self.attempts.get(task, 0)
            self.attempts[task] = lease["attempt"]
            self.leases[name][task] = lease["attempt"]
            self.old.append((name, ref(lease)))
            if lease["epoch"]:
                first = [f"train/0/{index}" for index in range(TASKS)]
                assert all(self._over(task_id) for task_id in first)
        every = [f"train/{e}/{i}" for e in range(EPOCHS) for i in range(TASKS)]
        end = "done" if any(self.done_counts.values()) else "stop"
        assert (answer["state"] == end) == all(map(self._over, every))
        if not answer["tasks"] and answer["state"] == "wait":
            assert any(self.leases.values()) or any(self.ledger.failing())

    @precondition(lambda self: self.old)
    @rule(data=st.data(), kind=st.sampled_from(["done", "failed", "back"]))
    def report(self, data: st.DataObject, kind: str) -> None:
        """Reports any earlier lease, current or not: only the holder's own changes anything."""
        name, entry = data.draw(st.sampled_from(self.old))
        if name not in self.leases:
            return
        task = entry["task"]
        current = self.leases[name].get(task) == entry["attempt"]
        report = {**entry, "error": "e"} if kind == "failed" else entry
        result = self._work(name, **{kind: [report]})["results"][0]
        if not current:
            assert result in ("stale", "accepted")
            assert result == "stale" or kind == "done"
            return
        assert result == "accepted"
        del self.leases[name][task]
        self.done_counts[task] += kind == "done"
        if kind == "failed":
            self._fail(task)
        elif kind == "done":
            self.wave.clear()
            self.dropped_indexes.discard(task.split("/")[2])

    @rule()
    def end_pauses(self) -> None:
        """Ends the pauses of failed tasks, first for others and then for all."""
        end_pauses(self.ledger)

    @rule(name=NAMES, how=st.sampled_from(["leave", "expire", "stuck", "again"]))
    def disrupt(self, name: str, how: str) -> None:
        """Disrupts a trainer: its leases are free for others, and no failure is counted."""
        if name not in self.leases:
            return
        if how == "leave":
            self.ledger.execute(Leave(**who(name)))
            del self.leases[name]
        elif how == "expire":
            self.ledger.execute(Expire({name: {}}))
            del self.leases[name]
        elif how == "stuck":
            self.ledger.execute(Expire(stuck={name: {}}))
            self.leases[name] = {}
        else:
            self.ledger.execute(Join(trainer=name, incarnation="other"))
            self.ledger.execute(Join(**who(name)))
            self.leases[name] = {}

    @rule()
    def reopen(self) -> None:
        """Restores the ledger from its own dump, which changes nothing."""
        dumped = orjson.loads(orjson.dumps(self.ledger.dump()))
        self.ledger = Ledger("digits", max_dropped_share=1.0)
        self.ledger.load(dumped)
        assert orjson.loads(orjson.dumps(self.ledger.dump())) == dumped

    @rule()
    def dump(self) -> None:
        """Dumps the ledger, as before a snapshot is written on another thread."""
        self.dumped = self.ledger.dump()
        self.written = orjson.dumps(self.dumped)

    @precondition(lambda self: self.dumped)
    @invariant()
    def a_dump_stays_what_it_is(self) -> None:
        """What the ledger does later does not reach a dump that is still being written."""
        assert orjson.dumps(self.dumped) == self.written

    @invariant()
    def nothing_is_accepted_twice(self) -> None:
        """Each task is done once at most, and the totals are the model's."""
        progress = self.ledger.datasets["train"].progress()
        assert max(self.done_counts.values(), default=0) <= 1
        assert progress["done_tasks"] == sum(self.done_counts.values())
        assert progress["leased_tasks"] == sum(len(leases) for leases in self.leases.values())
        assert progress["dropped_tasks"] == len(self.dropped_tasks)

    def teardown(self) -> None:
        """Whatever happened, one trainer can complete the job."""
        self.ledger.execute(Expire({name: {} for name in "abc"}))
        self.ledger.execute(Join(**who("last")))
        while not self.ledger.complete:
            end_pauses(self.ledger)
            tasks = self._work("last", want=3)["tasks"]
            assert tasks or any(self.ledger.failing())
            self._work("last", done=[ref(lease) for lease in tasks])
        progress = self.ledger.datasets["train"].progress()
        assert self.ledger.complete
        assert progress["done_tasks"] + progress["dropped_tasks"] == TASKS * EPOCHS


LedgerMachine.TestCase.settings = settings(
    max_examples=5_000 if THOROUGH else 30, stateful_step_count=40, deadline=None
)
TestLedgerMachine = LedgerMachine.TestCase
