"""A data set and its epochs: which may be worked on now, and what became of those before."""

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from master.bounds import MOST_ROUNDS, capped
from master.cutting import Cutting, Span
from master.epoch import Epoch
from master.shuffle import Order
from master.terms import Terms

Json = dict[str, Any]

TRAINING, EVALUATION, EXPORT = "training", "evaluation", "export"
BUDGET = 3
"""Failures after which a task is dropped. Disruptions are none."""
_MOST_OPEN = 8
"""Epochs that may overlap, where that was asked for."""
_MOST_REACHED = 256
"""Epochs that another master may have begun beyond the oldest open one, before its snapshot was
kept. Evaluations hold metrics, and one comes after the other: of these, as many as may overlap."""
_MOST_METRICS = 80
"""Metrics of one evaluation: its tasks need not all have the same ones."""
_MOST_KEPT_METRICS = 8_000
"""Metrics of all evaluations of a data set together; the oldest evaluations are forgotten."""


@dataclass(slots=True)
class Totals:
    """What became of tasks and records, over all epochs."""

    tasks: int = 0
    records: int = 0
    dropped_tasks: int = 0
    dropped_records: int = 0


@dataclass(slots=True)
class Round:
    """One evaluation of one model version."""

    model_version: int
    records: int = 0
    sums: dict[str, float | None] = field(default_factory=dict)
    """Metric -> its sum over records; None once it was no number anywhere."""
    weights: dict[str, int] = field(default_factory=dict)
    """Metric -> records in its sum."""
    complete: bool = False

    def add(self, metrics: dict[str, float | None], records: int) -> None:
        """A task's means, weighted by its records; None is a mean that was no number."""
        self.records += records
        for name, value in metrics.items():
            if name not in self.sums and len(self.sums) >= _MOST_METRICS:
                continue
            before = self.sums.get(name, 0.0)
            total = None if value is None or before is None else before + value * records
            self.sums[name] = total if total is not None and isfinite(total) else None
            self.weights[name] = self.weights.get(name, 0) + records

    def told(self) -> Json:
        """For status and answers."""
        means = {
            name: None if total is None else total / max(1, self.weights[name])
            for name, total in self.sums.items()
        }
        return {
            "model_version": self.model_version,
            "records": self.records,
            "metrics": means,
            "complete": self.complete,
        }

    def dump(self) -> list[Any]:
        """As JSON."""
        return [self.model_version, self.records, self.sums, self.weights, self.complete]


class Dataset:
    """What `PUT /v1/datasets/{name}` described, and how far it is."""

    def __init__(self, name: str, shape: Json) -> None:
        """Opens the first epoch."""
        self.name = name
        self.shape = shape
        self.kind: str = shape["kind"]
        self.cutting = Cutting(shape)
        self.epochs: int = shape["epochs"]
        self.opened = 0
        """Epochs that were begun."""
        self.open: dict[int, Epoch] = {}
        self.totals = Totals()
        self.rounds: list[Round] = []
        """The newest evaluations, one for each epoch up to the last."""
        self.terms = Terms()
        if self.kind == EVALUATION:
            self.rounds = [Round(0) for _ in range(self.epochs)]
        self.advance()

    @property
    def complete(self) -> bool:
        """Whether all its epochs are."""
        return not self.open and self.opened >= self.epochs

    def ask(self, model_version: int) -> None:
        """One more evaluation, after those asked for before."""
        self.rounds.append(Round(model_version))
        self.epochs += 1
        self._forget_rounds()
        self.advance()

    @property
    def crowded(self) -> bool:
        """Whether so many evaluations are still to do that there is no place for one more."""
        return sum(not each.complete for each in self.rounds) >= MOST_ROUNDS

    def lease(self, trainer: str, base: int, want: int) -> list[Json]:
        """The next tasks as the protocol tells them, without `lease_s`; of one epoch, some at least.

        Args:
            trainer: Who gets them.
            base: Attempts are greater than this.
            want: How many at most; one of them must be free.
        """
        epoch = next(epoch for epoch in self.open.values() if epoch.free)
        found: list[Json] = []
        while len(found) < want and epoch.free:
            found.append(self.told(epoch.number, *epoch.lease(trainer, base)))
        self.advance()
        return found

    def told(self, epoch: int, index: int, attempt: int) -> Json:
        """A lease, as the protocol tells it."""
        span = self.cutting.span(index)
        lease: Json = {
            "task": f"{self.name}/{epoch}/{index}",
            "attempt": attempt,
            "kind": self.kind,
            "dataset": self.name,
            "epoch": epoch,
            "start": span.start,
            "end": span.end,
        }
        if span.file is not None:
            lease["file"] = span.file
        if self.kind == EVALUATION:
            lease["model_version"] = self._round(epoch).model_version
        return lease

    @property
    def free(self) -> bool:
        """Whether somebody could lease a task now."""
        return any(epoch.free for epoch in self.open.values())

    @property
    def leased(self) -> int:
        """Number of tasks that somebody has."""
        return sum(epoch.leased for epoch in self.open.values())

    def span(self, index: int) -> Span:
        """The records of a task."""
        return self.cutting.span(index)

    def accept(self, epoch: Epoch, index: int, metrics: dict[str, float | None]) -> int:
        """Books a task as done.

        Returns:
            Its number of records.
        """
        epoch.finish(index)
        self.terms.acknowledge()
        size = self.span(index).size
        self.totals.tasks += 1
        self.totals.records = capped(self.totals.records + size)
        if self.kind == EVALUATION:
            self._round(epoch.number).add(metrics, size)
        if epoch.complete:
            self.advance()
        return size

    def fail(self, epoch: Epoch, index: int) -> bool:
        """A leased task failed: it comes back, or its budget is used up.

        Returns:
            Whether it was dropped.
        """
        task = epoch.outstanding[index]
        task.failures += 1
        if task.failures < BUDGET:
            epoch.give_back(index)
            return False
        epoch.finish(index, dropped=True)
        self.totals.dropped_tasks += 1
        dropped = self.totals.dropped_records + self.span(index).size
        self.totals.dropped_records = capped(dropped)
        self.advance()
        return True

    def advance(self) -> None:
        """Closes epochs that are complete, and opens the next where it may begin."""
        for number in [n for n, epoch in self.open.items() if epoch.complete]:
            del self.open[number]
            if self.kind == EVALUATION:
                self._round(number).complete = True
                self._forget_rounds()
        while self.opened < self.epochs and self._may_begin():
            self._begin()

    def reach(self, number: int) -> Epoch | None:
        """An epoch, begun now if another master had begun it before its snapshot was kept."""
        most = _MOST_OPEN if self.kind == EVALUATION else _MOST_REACHED
        if number >= min(self.open, default=self.opened) + most:
            return None
        while self.opened <= number < self.epochs:
            self._begin()
        return self.open.get(number)

    def _round(self, number: int) -> Round:
        """The evaluation that an open epoch is."""
        return self.rounds[number - self.epochs]

    def _forget_rounds(self) -> None:
        """Forgets the oldest evaluations that are complete, where there are too many."""
        metrics = sum(len(each.sums) for each in self.rounds)
        while self.rounds[0].complete and (
            len(self.rounds) > MOST_ROUNDS or metrics > _MOST_KEPT_METRICS
        ):
            metrics -= len(self.rounds.pop(0).sums)

    def _begin(self) -> None:
        self.open[self.opened] = self._epoch(self.opened)
        self.opened += 1

    def _may_begin(self) -> bool:
        if not self.open:
            return True
        exhausted = all(epoch.exhausted for epoch in self.open.values())
        return bool(self.shape["overlap"]) and exhausted and len(self.open) < _MOST_OPEN

    def _epoch(self, number: int) -> Epoch:
        return Epoch(number, self.cutting.bound, self._order(number))

    def _order(self, number: int) -> Order:
        count = self.cutting.count
        return Order(1 if count is None else count, self.shape["shuffle_seed"], number)

    def progress(self) -> Json:
        """For status: a few numbers, whatever the size."""
        records = self.cutting.records
        return {
            "kind": self.kind,
            "epochs": self.epochs,
            "epoch": min(self.open, default=self.opened),
            "records": records,
            "done_tasks": self.totals.tasks,
            "done_records": self.totals.records,
            "leased_tasks": self.leased,
            "returned_tasks": sum(len(epoch.returned) for epoch in self.open.values()),
            "dropped_tasks": self.totals.dropped_tasks,
            "dropped_records": self.totals.dropped_records,
            "complete": self.complete,
            "term": self.terms.acknowledged,
        }

    def dump(self) -> Json:
        """As JSON; see `load`."""
        totals = self.totals
        return {
            "shape": self.shape,
            "epochs": self.epochs,
            "opened": self.opened,
            "open": [epoch.dump() for epoch in self.open.values()],
            "totals": [
                totals.tasks,
                totals.records,
                totals.dropped_tasks,
                totals.dropped_records,
            ],
            "rounds": [each.dump() for each in self.rounds],
            "terms": self.terms.dump(),
        }

    @classmethod
    def load(cls, name: str, dumped: Json) -> "Dataset":
        """The data set that `dump` wrote."""
        found = cls(name, dumped["shape"])
        found.epochs, found.opened = dumped["epochs"], dumped["opened"]
        count = found.cutting.bound
        found.open = {
            one["number"]: Epoch.load(one, count, found._order(one["number"]))
            for one in dumped["open"]
        }
        found.totals = Totals(*dumped["totals"])
        found.rounds = [Round(*each) for each in dumped["rounds"]]
        found.terms = Terms.load(dumped.get("terms"))
        return found
