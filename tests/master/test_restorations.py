"""Models that are restored at any moment: in the end each has every record of every epoch once."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
import pytest

from master import rewinds
from master.commands import Describe, EndSettling, Expire, Rewind, from_json, to_json
from master.ledger import Ledger
from runtime.call_checks import Json
from tests.master.ledger_calls import done, join, ref, shape, work

_BATCH, _BATCHES, _MORE_BATCHES = 50, range(3), range(3, 40)
_NAMES = ("a", "b", "c")
_ALL = 10**6
_ACTIONS = {
    "lease": 6,
    "train": 8,
    "acknowledge": 6,
    "give_back": 3,
    "leave": 1,
    "kill": 1,
    "save": 3,
    "restore": 1,
    "take_over": 2,
    "lose_newest": 1,
}
"""What happens at each step, and how often."""


@dataclass
class _Lease:
    lease: Json
    trained: int = 0
    steps: int = 0

    @property
    def remaining(self) -> int:
        return int(self.lease["end"] - self.lease["start"] - self.trained)


@dataclass
class _Save:
    """A checkpoint: the model, the position of the data, and what the model has beyond that."""

    model: Counter[tuple[str, int]] = field(default_factory=Counter)
    position: Json | None = None
    remaining: dict[str, int] = field(default_factory=dict)
    steps: int = 0


class _Job:
    """Trainers of one model at parameter servers, which is a count of the records that it has seen."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.records, self.epochs = random.choice((7, 20, 40)), random.randint(1, 3)
        fields: dict[str, Any] = {
            "task_records": random.choice((1, 3, 10)),
            "epochs": self.epochs,
            "shuffle_seed": random.choice((None, 5)),
            "overlap": random.random() < 0.3,
        }
        self.ledger = Ledger("digits")
        self.ledger.execute(Describe("train", shape(self.records, **fields)))
        self.model: Counter[tuple[str, int]] = Counter()
        self.steps = 0
        """Steps that the model has made."""
        self.leases: dict[str, dict[str, _Lease]] = {}
        """Trainer -> its leases by task."""
        self.generation = 0
        self.saves, self.snapshots = [_Save()], list[bytes]()
        for name in _NAMES:
            self._join(name)

    def play(self) -> None:
        """Random steps, then work until all is done."""
        for _ in range(self.random.randint(20, 150)):
            name = self.random.choice(sorted(self.leases))
            (action,) = self.random.choices(tuple(_ACTIONS), tuple(_ACTIONS.values()))
            getattr(self, f"_{action}")(name)
            if self.ledger.state() == "done":
                return
        self.ledger.execute(EndSettling())
        for name in sorted(self.leases):
            while self.leases[name] or self._lease(name):
                self._acknowledge(name)

    def _join(self, name: str) -> None:
        held = self.leases.setdefault(name, {})
        assert join(self.ledger, name, held=[ref(h.lease) for h in held.values()])["lost"] == []

    def _lease(self, name: str) -> int:
        tasks = work(self.ledger, name, want=self.random.randint(1, 3))["tasks"]
        self.leases[name] |= {lease["task"]: _Lease(lease) for lease in tasks}
        return len(tasks)

    def _train(self, name: str, most: int = 4) -> _Lease | None:
        if not self.leases[name]:
            return None
        held = self.random.choice(list(self.leases[name].values()))
        start, epoch = held.lease["start"] + held.trained, held.lease["task"].split("/")[1]
        count = min(most, held.remaining)
        held.steps += 1
        self.steps += 1
        self.model.update((epoch, record) for record in range(start, start + count))
        held.trained += count
        return held

    def _acknowledge(self, name: str) -> None:
        held = self._train(name, _ALL)
        if held is not None:
            del self.leases[name][held.lease["task"]]
            assert done(self.ledger, name, [held.lease], steps=held.steps) == ["accepted"]

    def _give_back(self, name: str) -> None:
        held = self._train(name)
        if held is not None and held.remaining:
            del self.leases[name][held.lease["task"]]
            back = [self._front(held)]
            assert work(self.ledger, name, back=back)["results"] == ["accepted"]

    def _leave(self, name: str) -> None:
        if len(self.leases) == 1:
            return
        held = self.leases.pop(name).values()
        for lease in [lease for lease in held if not lease.remaining]:
            done(self.ledger, name, [lease.lease], steps=lease.steps)
        parts = [self._front(lease) for lease in held if lease.remaining]
        fields = {"trainer": name, "incarnation": f"{name}-1", "back": parts}
        self.ledger.execute(from_json({"do": "leave", **fields}))

    @staticmethod
    def _front(held: _Lease) -> Json:
        steps = {"steps": held.steps} if held.trained else {}
        return {**ref(held.lease), "trained": held.trained, "counted": held.trained, **steps}

    def _kill(self, name: str) -> None:
        """What only a killed trainer knew of the model's records ends with a restoration."""
        trained = {task: held.trained for task, held in self.leases[name].items()}
        self.ledger.execute(Expire({name: trained}))
        self.leases[name] = {}
        self._join(name)
        if any(trained.values()):
            self._restore(name)

    def _save(self, _: str) -> None:
        position = rewinds.position(self.ledger.datasets["train"])
        held = [lease for leases in self.leases.values() for lease in leases.values()]
        position["steps"] += sum(lease.steps for lease in held)
        remaining = {
            task: held.remaining
            for leases in self.leases.values()
            for task, held in leases.items()
            if held.trained
        }
        position = orjson.loads(orjson.dumps(position))
        self.saves.append(_Save(self.model.copy(), position, remaining, self.steps))
        self.snapshots.append(orjson.dumps(self.ledger.dump()))

    def _restore(self, name: str) -> None:
        save = self.random.choice(self.saves)
        self.generation += 1
        self.model, self.steps = save.model.copy(), save.steps
        self.leases = {name: {} for name in self.leases}
        command = Rewind(
            trainer=name,
            incarnation=f"{name}-1",
            dataset="train",
            version=0,
            event=f"generation-{self.generation - 1}",
            reason="servers restarted",
            position=save.position,
            generation=self.generation,
            remaining=save.remaining,
        )
        self.ledger.execute(from_json(orjson.loads(orjson.dumps(to_json(command)))))

    def _take_over(self, _: str, snapshot: bytes = b"") -> None:
        """Another master, which has everything, and trainers that hold what they held."""
        dumped = snapshot or orjson.dumps(self.ledger.dump())
        self.ledger = Ledger("digits")
        self.ledger.load(orjson.loads(dumped))
        self.ledger.execute(from_json({"do": "takeover"}))
        for name in sorted(self.leases):
            self._join(name)

    def _lose_newest(self, name: str) -> None:
        """All trainers and the newest of the master are lost; checkpoints may be ahead of it."""
        if self.snapshots:
            self.leases = {name: {}}
            self._take_over(name, self.random.choice(self.snapshots))
            self._restore(name)


@pytest.mark.parametrize(
    "batch",
    [*_BATCHES, *(pytest.param(batch, marks=pytest.mark.soak) for batch in _MORE_BATCHES)],
)
def test_a_model_has_every_record_once_whenever_it_is_restored(batch: int) -> None:
    """Whatever is trained again, given back, or taken over by a master that lost the newest."""
    for seed in range(batch * _BATCH, (batch + 1) * _BATCH):
        job = _Job(Random(seed))  # noqa: S311 - to be repeated
        job.play()
        epochs, records = range(job.epochs), range(job.records)

        assert job.model == {(str(e), r): 1 for e in epochs for r in records}, seed
        assert job.ledger.steps == job.steps, seed
