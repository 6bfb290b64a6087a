"""The ledger against a plain model that remembers everything."""

from collections import Counter
from typing import Any

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from master.dataset import BUDGET
from master.ledger import Ledger
from tests.master.books import ref, shape, who
from tests.support.strategies import THOROUGH

Json = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "c"])
TASKS, EPOCHS = 5, 2


class LedgerMachine(RuleBasedStateMachine):
    """Trainers come, go, work, fail; the model holds one entry for each task of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger("digits", most_dropped=100)
        described = shape(records=10 * TASKS, epochs=EPOCHS, shuffle_seed=1)
        self.ledger.execute({"do": "describe", "name": "train", "shape": described})
        self.held: dict[str, dict[str, int]] = {}
        self.booked: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.attempts: dict[str, int] = {}
        self.old: list[tuple[str, Json]] = []

    def _over(self, task: str) -> bool:
        return bool(self.booked[task]) or self.failures[task] >= BUDGET

    def _work(self, name: str, **more: Any) -> Json:
        return self.ledger.execute({"do": "work", **who(name), "want": 0, **more})

    @rule(name=NAMES)
    def join(self, name: str) -> None:
        """The same incarnation may join again: it keeps what it holds."""
        self.ledger.execute({"do": "join", **who(name)})
        self.held.setdefault(name, {})

    @rule(name=NAMES, want=st.integers(1, 4))
    def lease(self, name: str, want: int) -> None:
        """Tasks that are free: of one epoch, with greater attempts than ever before."""
        if name not in self.held:
            return
        taken = {task for held in self.held.values() for task in held}
        answer = self._work(name, want=want)
        for lease in answer["tasks"]:
            task = lease["task"]
            assert task not in taken
            assert not self._over(task)
            assert lease["attempt"] > self.attempts.get(task, 0)
            self.attempts[task] = lease["attempt"]
            self.held[name][task] = lease["attempt"]
            self.old.append((name, ref(lease)))
            if lease["epoch"]:
                first = [f"train/0/{index}" for index in range(TASKS)]
                assert all(self._over(one) for one in first)
        every = [f"train/{e}/{i}" for e in range(EPOCHS) for i in range(TASKS)]
        assert (answer["state"] == "done") == all(map(self._over, every))
        if not answer["tasks"] and answer["state"] == "wait":
            assert any(self.held.values())

    @precondition(lambda self: self.old)
    @rule(data=st.data(), kind=st.sampled_from(["done", "failed", "back"]))
    def report(self, data: st.DataObject, kind: str) -> None:
        """Any lease that ever was, current or not: only the holder's own changes anything."""
        name, entry = data.draw(st.sampled_from(self.old))
        if name not in self.held:
            return
        task = entry["task"]
        current = self.held[name].get(task) == entry["attempt"]
        told = {**entry, "error": "e"} if kind == "failed" else entry
        result = self._work(name, **{kind: [told]})["results"][0]
        if not current:
            assert result in ("stale", "accepted")
            assert result == "stale" or kind == "done"
            return
        assert result == "accepted"
        del self.held[name][task]
        self.booked[task] += kind == "done"
        self.failures[task] += kind == "failed"

    @rule(name=NAMES, how=st.sampled_from(["leave", "expire", "stuck", "again"]))
    def disrupt(self, name: str, how: str) -> None:
        """What it held is for others; that never counts as a failure."""
        if name not in self.held:
            return
        if how == "leave":
            self.ledger.execute({"do": "leave", **who(name)})
            del self.held[name]
        elif how == "expire":
            self.ledger.execute({"do": "expire", "trainers": {name: {}}, "stuck": {}})
            del self.held[name]
        elif how == "stuck":
            self.ledger.execute({"do": "expire", "trainers": {}, "stuck": {name: {}}})
            self.held[name] = {}
        else:
            self.ledger.execute({"do": "join", "trainer": name, "incarnation": "other"})
            self.ledger.execute({"do": "join", **who(name)})
            self.held[name] = {}

    @rule()
    def reopen(self) -> None:
        """Books that were stored and read again are the same books."""
        dumped = orjson.loads(orjson.dumps(self.ledger.dump()))
        self.ledger = Ledger("digits", most_dropped=100)
        self.ledger.load(dumped)
        assert orjson.loads(orjson.dumps(self.ledger.dump())) == dumped

    @invariant()
    def nothing_is_booked_twice(self) -> None:
        """And the totals are the model's."""
        progress = self.ledger.datasets["train"].progress()
        assert max(self.booked.values(), default=0) <= 1
        assert progress["done_tasks"] == sum(self.booked.values())
        assert progress["leased_tasks"] == sum(len(held) for held in self.held.values())
        assert progress["dropped_tasks"] == sum(n >= BUDGET for n in self.failures.values())

    def teardown(self) -> None:
        """Whatever happened, one trainer can bring the job to its end."""
        self.ledger.execute({"do": "expire", "trainers": {name: {} for name in "abc"}, "stuck": {}})
        self.ledger.execute({"do": "join", **who("last")})
        while tasks := self._work("last", want=3)["tasks"]:
            self._work("last", done=[ref(lease) for lease in tasks])
        progress = self.ledger.datasets["train"].progress()
        assert self.ledger.complete
        assert progress["done_tasks"] + progress["dropped_tasks"] == TASKS * EPOCHS


LedgerMachine.TestCase.settings = settings(
    max_examples=5_000 if THOROUGH else 30, stateful_step_count=40, deadline=None
)
TestLedgerMachine = LedgerMachine.TestCase
