"""A data set: its open epochs, totals over all epochs, and its evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from master.bounds import MOST_EVALUATIONS, capped
from master.epoch import Epoch
from master.partitioning import Partitioning, Span
from master.shuffle import TaskOrder
from master.terms import Terms
from master.types import Json

TRAINING, EVALUATION, EXPORT = "training", "evaluation", "export"
FAILURE_BUDGET = 3
"""Failures after which a task is dropped. Disruptions do not count."""
_MOST_OPEN = 8
"""Epochs that may overlap, where the description allows it."""
_MOST_ADOPTED = 256
"""Epochs that another master may have begun beyond the oldest open one, after its last snapshot.
Evaluations hold metrics, and run one after the other: of these, as many as may overlap."""
_MOST_METRICS = 80
"""Metrics of one evaluation: its tasks may report different ones."""
_MOST_KEPT_METRICS = 8_000
"""Metrics of all evaluations of a data set together; beyond it the oldest evaluations are removed."""


@dataclass(slots=True)
class DatasetTotals:
    """Numbers of tasks and records that are done or dropped, over all epochs."""

    tasks: int = 0
    records: int = 0
    dropped_tasks: int = 0
    dropped_records: int = 0


@dataclass(slots=True)
class Evaluation:
    """One evaluation of one model version."""

    model_version: int
    records: int = 0
    sums: dict[str, float | None] = field(default_factory=dict)
    """Metric -> its sum over records; None once one of its means was not finite."""
    weights: dict[str, int] = field(default_factory=dict)
    """Metric -> records in its sum."""
    complete: bool = False

    def add(self, metrics: Mapping[str, float | None], records: int) -> None:
        """Adds a task's means, weighted by its records; None is a mean that was not finite."""
        self.records += records
        for name, value in metrics.items():
            if name not in self.sums and len(self.sums) >= _MOST_METRICS:
                continue
            before = self.sums.get(name, 0.0)
            total = None if value is None or before is None else before + value * records
            self.sums[name] = total if total is not None and isfinite(total) else None
            self.weights[name] = self.weights.get(name, 0) + records

    def to_json(self) -> Json:
        """The evaluation as status and answers contain it."""
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
        """The evaluation as snapshots contain it."""
        sums, weights = dict(self.sums), dict(self.weights)
        return [self.model_version, self.records, sums, weights, self.complete]


class Dataset:
    """A data set that `PUT /v1/datasets/{name}` described, and its progress."""

    def __init__(self, name: str, shape: Json) -> None:
        """Opens the first epoch."""
        self.name = name
        self.shape = shape
        self.kind: str = shape["kind"]
        self.partitioning = Partitioning(shape)
        self.epochs: int = shape["epochs"]
        self.opened = 0
        """Number of epochs that were begun."""
        self.open: dict[int, Epoch] = {}
        self.totals = DatasetTotals()
        self.evaluations: list[Evaluation] = []
        """The newest evaluations, one for each epoch up to the last."""
        self.terms = Terms()
        if self.kind == EVALUATION:
            self.evaluations = [Evaluation(0) for _ in range(self.epochs)]
        self.advance()

    @property
    def complete(self) -> bool:
        """Whether all its epochs are complete."""
        return not self.open and self.opened >= self.epochs

    def add_evaluation(self, model_version: int) -> None:
        """Queues one more evaluation, behind all earlier ones."""
        self.evaluations.append(Evaluation(model_version))
        self.epochs += 1
        self._remove_old_evaluations()
        self.advance()

    @property
    def evaluations_full(self) -> bool:
        """Whether no more evaluations are accepted until some pending ones are complete."""
        pending = sum(not evaluation.complete for evaluation in self.evaluations)
        return pending >= MOST_EVALUATIONS

    def lease(self, trainer: str, base: int, want: int) -> list[Json]:
        """Leases the next tasks, all of one epoch; a task must be free.

        Args:
            trainer: The trainer that gets them.
            base: Attempts are greater than this.
            want: The most tasks; at least one is leased.

        Returns:
            The leases as in the protocol, without `lease_s`.
        """
        epoch = next(epoch for epoch in self.open.values() if epoch.free)
        leases: list[Json] = []
        while len(leases) < want and epoch.free:
            leases.append(self.lease_json(epoch.number, *epoch.lease(trainer, base)))
        self.advance()
        return leases

    def task(self, epoch: int, index: int) -> str:
        """The name of a task, by which trainers report it."""
        return f"{self.name}/{epoch}/{index}"

    def lease_json(self, epoch: int, index: int, attempt: int) -> Json:
        """A lease as in the protocol."""
        span = self.partitioning.span(index)
        lease: Json = {
            "task": self.task(epoch, index),
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
            lease["model_version"] = self._evaluation(epoch).model_version
        return lease

    @property
    def free(self) -> bool:
        """Whether a task can be leased now."""
        return any(epoch.free for epoch in self.open.values())

    @property
    def leased(self) -> int:
        """Number of tasks that are leased now."""
        return sum(epoch.leased for epoch in self.open.values())

    def span(self, index: int) -> Span:
        """The records of a task."""
        return self.partitioning.span(index)

    def accept(self, epoch: Epoch, index: int, metrics: Mapping[str, float | None]) -> int:
        """Marks a task as done and adds it to the totals.

        Returns:
            Its number of records.
        """
        epoch.finish(index)
        self.terms.acknowledge()
        size = self.span(index).size
        self.totals.tasks += 1
        self.totals.records = capped(self.totals.records + size)
        if self.kind == EVALUATION:
            self._evaluation(epoch.number).add(metrics, size)
        if epoch.complete:
            self.advance()
        return size

    def fail(self, epoch: Epoch, index: int) -> bool:
        """Counts a failure of a leased task: it is returned, or dropped after too many.

        Returns:
            Whether it was dropped.
        """
        task = epoch.outstanding[index]
        task.failures += 1
        if task.failures < FAILURE_BUDGET:
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
                self._evaluation(number).complete = True
                self._remove_old_evaluations()
        while self.opened < self.epochs and self._may_begin():
            self._begin()

    def ensure_open(self, number: int) -> Epoch | None:
        """An open epoch; begins it if another master can have begun it after its last snapshot."""
        most = _MOST_OPEN if self.kind == EVALUATION else _MOST_ADOPTED
        if number >= min(self.open, default=self.opened) + most:
            return None
        while self.opened <= number < self.epochs:
            self._begin()
        return self.open.get(number)

    def _evaluation(self, number: int) -> Evaluation:
        """The evaluation of an open epoch."""
        return self.evaluations[number - self.epochs]

    def _remove_old_evaluations(self) -> None:
        """Removes the oldest complete evaluations while there are too many, or too many metrics."""
        metrics = sum(len(evaluation.sums) for evaluation in self.evaluations)
        while self.evaluations[0].complete and (
            len(self.evaluations) > MOST_EVALUATIONS or metrics > _MOST_KEPT_METRICS
        ):
            metrics -= len(self.evaluations.pop(0).sums)

    def _begin(self) -> None:
        self.open[self.opened] = self._epoch(self.opened)
        self.opened += 1

    def _may_begin(self) -> bool:
        if not self.open:
            return True
        exhausted = all(epoch.exhausted for epoch in self.open.values())
        return bool(self.shape["overlap"]) and exhausted and len(self.open) < _MOST_OPEN

    def _epoch(self, number: int) -> Epoch:
        return Epoch(number, self.partitioning.bound, self._order(number))

    def _order(self, number: int) -> TaskOrder:
        count = self.partitioning.count
        return TaskOrder(1 if count is None else count, self.shape["shuffle_seed"], number)

    def progress(self) -> Json:
        """The progress for the status: a few numbers, whatever the size."""
        records = self.partitioning.records
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
        """The data set as JSON; see `load`."""
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
            "rounds": [evaluation.dump() for evaluation in self.evaluations],
            "terms": self.terms.dump(),
        }

    @classmethod
    def load(cls, name: str, dumped: Json) -> "Dataset":
        """The data set that `dump` wrote."""
        dataset = cls(name, dumped["shape"])
        dataset.epochs, dataset.opened = dumped["epochs"], dumped["opened"]
        count = dataset.partitioning.bound
        dataset.open = {
            epoch["number"]: Epoch.load(epoch, count, dataset._order(epoch["number"]))
            for epoch in dumped["open"]
        }
        dataset.totals = DatasetTotals(*dumped["totals"])
        dataset.evaluations = [Evaluation(*fields) for fields in dumped["rounds"]]
        dataset.terms = Terms.load(dumped.get("terms"))
        return dataset
