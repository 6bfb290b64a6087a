"""A data set: its open epochs, totals over all epochs, and its evaluations. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from edl_protocol.master import MAX_EVALUATIONS, MODEL_GONE

from master.bounds import capped
from master.epoch import Epoch
from master.failures import FailureWave, max_dropped
from master.model_history import RewindLog, Terms
from master.partitioning import Partitioning, Span, TaskOrder
from runtime.call_checks import Json

_MAX_METRICS = 640
"""Maximum number of metrics of one evaluation; its tasks may report different metrics."""
TRAINING, EVALUATION, EXPORT = "training", "evaluation", "export"
FAILURE_BUDGET = 3
"""Failures after which a task is dropped. Disruptions and outages do not count as failures."""
PATIENT_BUDGET = 8
"""Failures of the storage after which a task is dropped. This budget also applies to other errors
while many tasks fail alike, because the client of a storage may cause such errors. The pauses
between eight failures add up to 90 s."""
_MAX_FAILING = 16
"""During an outage, no new tasks are leased while at least this many tasks fail."""
_MAX_FAILING_EVER = 1_024
"""The same limit outside of an outage: one trainer that can read nothing may fail thousands of
tasks. At the limit, the other trainers train the failed tasks before new ones."""
_MAX_OPEN = 8
"""Maximum number of open epochs at a time, if the description allows more than one."""
_MAX_ADOPTED = 256
"""Maximum number of epochs, beyond the oldest open one, that another master may have begun after
its last snapshot. Evaluations hold metrics and run one after the other, so `_MAX_OPEN` applies to
them."""
_MAX_KEPT_METRICS = 8_000
"""Maximum number of metrics in all evaluations of a data set; above it, the oldest evaluations are
removed."""


@dataclass(slots=True)
class Evaluation:
    """One evaluation of one model version."""

    model_version: int
    records: int = 0
    sums: dict[str, float | None] = field(default_factory=dict)
    """Metric -> sum over records; None after a task has reported a mean that is not finite."""
    weights: dict[str, int] = field(default_factory=dict)
    """Metric -> number of records in its sum."""
    complete: bool = False

    def add(self, metrics: Mapping[str, float | None], records: int) -> None:
        """Adds a task's means, weighted by its number of records; a mean that was not finite is None."""
        self.records += records
        for name, value in metrics.items():
            if name not in self.sums and len(self.sums) >= _MAX_METRICS:
                continue
            before = self.sums.get(name, 0.0)
            total = None if value is None or before is None else before + value * records
            self.sums[name] = total if total is not None and isfinite(total) else None
            self.weights[name] = self.weights.get(name, 0) + records

    @property
    def failed(self) -> bool:
        """Whether the evaluation has no result and will never have one."""
        return MODEL_GONE in self.sums or (self.complete and not self.sums)

    def discard(self) -> None:
        """Discards the result: the model was lost, and another model will have the same version."""
        self.sums[MODEL_GONE] = 1.0
        self.weights[MODEL_GONE] = 1

    def to_json(self) -> Json:
        """Returns the evaluation for answers to trainers and for the status."""
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
        """Returns the evaluation for a snapshot: the fields of this class, in order."""
        sums, weights = dict(self.sums), dict(self.weights)
        return [self.model_version, self.records, sums, weights, self.complete]

    @classmethod
    def load(cls, dumped: list[Any]) -> "Evaluation":
        """Returns the evaluation that `dump` wrote."""
        model_version, records, sums, weights, complete = dumped
        return cls(model_version, records, sums, weights, complete)


@dataclass(slots=True)
class DatasetTotals:
    """Numbers of tasks and records that are done or dropped, over all epochs."""

    tasks: int = 0
    records: int = 0
    dropped_tasks: int = 0
    dropped_records: int = 0

    def dump(self) -> list[int]:
        """Returns the totals for snapshots and positions: the fields of this class, in order."""
        return [self.tasks, self.records, self.dropped_tasks, self.dropped_records]

    @classmethod
    def load(cls, dumped: list[int]) -> "DatasetTotals":
        """Returns the totals that `dump` wrote."""
        tasks, records, dropped_tasks, dropped_records = dumped
        return cls(tasks, records, dropped_tasks, dropped_records)


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
        """Epochs that are not complete, by number."""
        self.totals = DatasetTotals()
        self.steps = 0
        """Steps of all trainers in tasks of this data set."""
        self.dropped: dict[int, None] = {}
        """Keys of tasks that were dropped and not done in a later epoch; empty for streams."""
        self._is_record_order = shape.get("record_order") is not None
        self.wave = FailureWave()
        self.evaluations: list[Evaluation] = []
        """The newest evaluations, one for each of the last epochs."""
        self.terms = Terms()
        self.rewinds = RewindLog()
        if self.kind == EVALUATION:
            self.evaluations = [Evaluation(0) for _ in range(self.epochs)]
        self.advance()

    @property
    def complete(self) -> bool:
        """Whether all its epochs are complete."""
        return not self.open and self.opened >= self.epochs

    def add_evaluation(self, model_version: int) -> None:
        """Queues an evaluation after all earlier ones, unless this version already has an evaluation.

        An evaluation that ended without a result, because the model was gone, is repeated.
        """
        for evaluation in self.evaluations:
            if evaluation.model_version == model_version and not evaluation.failed:
                return
        self.evaluations.append(Evaluation(model_version))
        self.epochs += 1
        self._remove_old_evaluations()
        self.advance()

    @property
    def evaluations_full(self) -> bool:
        """Whether the limit of pending evaluations is reached."""
        pending = sum(not evaluation.complete for evaluation in self.evaluations)
        return pending >= MAX_EVALUATIONS

    def lease(self, trainer: str, base: int, want: int) -> list[Json]:
        """Leases the next tasks, all of one epoch. At least one task must be free.

        Args:
            trainer: The trainer that gets the leases.
            base: The attempts of the leases are greater than this.
            want: The maximum number of tasks; at least one is leased.

        Returns:
            The leases of the answer, see the protocol, without `lease_s`.
        """
        fresh = self._leases_fresh
        epoch = next(e for e in self.open.values() if e.is_free(trainer, fresh=fresh))
        leases: list[Json] = []
        base = max(base, self.rewinds.base)
        while len(leases) < want and epoch.is_free(trainer, fresh=fresh):
            index, attempt = epoch.lease(trainer, base, fresh=fresh)
            leases.append(self.lease_json(epoch.number, index, attempt))
        self.advance()
        return leases

    def task(self, epoch: int, index: int) -> str:
        """Returns the name by which trainers report a task."""
        return f"{self.name}/{epoch}/{index}"

    def lease_json(self, epoch: int, index: int, attempt: int) -> Json:
        """Returns a lease for an answer, see the protocol."""
        span = self.partitioning.span(index)
        trained = self.open[epoch].outstanding[index].trained
        lease: Json = {
            "task": self.task(epoch, index),
            "attempt": attempt,
            "kind": self.kind,
            "dataset": self.name,
            "epoch": epoch,
            "start": span.start + trained,
            "end": span.end,
        }
        if span.file is not None:
            lease["file"] = span.file
        if self.kind == EVALUATION:
            lease["model_version"] = self._evaluation(epoch).model_version
        return lease

    def is_free(self, trainer: str) -> bool:
        """Returns whether a task can be leased to a trainer now."""
        fresh = self._leases_fresh
        return any(epoch.is_free(trainer, fresh=fresh) for epoch in self.open.values())

    @property
    def outage(self) -> bool:
        """Whether tasks fail one after the other for a cause that may be temporary."""
        return self.wave.is_outage(any_done=self.totals.tasks > 0)

    @property
    def _leases_fresh(self) -> bool:
        """Whether new tasks may be leased; False while too many failed tasks wait for a retry.

        Otherwise an outage, or one broken trainer, could fill the memory with failed tasks.
        """
        most = _MAX_FAILING if self.outage else _MAX_FAILING_EVER
        return sum(epoch.failing for epoch in self.open.values()) < most

    @property
    def leased(self) -> int:
        """Number of tasks that are leased now."""
        return sum(epoch.leased for epoch in self.open.values())

    def span(self, index: int) -> Span:
        """Returns the records of a task."""
        return self.partitioning.span(index)

    def remaining(self, epoch: Epoch, index: int) -> int:
        """Returns how many records of an outstanding task have not been counted as trained yet."""
        return self.span(index).size - epoch.outstanding[index].trained

    def accept(self, epoch: Epoch, index: int, metrics: Mapping[str, float | None]) -> int:
        """Marks a task as done and adds it to the totals.

        Returns:
            The number of the task's records that were not counted before.
        """
        size = self.remaining(epoch, index)
        epoch.finish(index)
        self.wave.clear()
        if not self._is_record_order:
            self.dropped.pop(index, None)
        self.totals.tasks += 1
        self._count(epoch, size, metrics)
        if epoch.complete:
            self.advance()
        return size

    def count_front(
        self, epoch: Epoch, index: int, records: int, metrics: Mapping[str, float | None]
    ) -> int:
        """Counts the first records of a leased task whose remainder is returned (decision 0033).

        Args:
            epoch: The epoch of the task.
            index: The task.
            records: How many records of the lease were trained, from its first one on.
            metrics: Means over these records.

        Returns:
            How many records are counted. It is 0 for kinds of data sets whose results are written
            for whole tasks. It is never all records, because only an acknowledgement completes a
            task.
        """
        if self.kind not in (TRAINING, EVALUATION):
            return 0
        counted = min(records, self.remaining(epoch, index) - 1)
        if counted > 0:
            epoch.outstanding[index].trained += counted
            self._count(epoch, counted, metrics)
        return counted

    def _count(self, epoch: Epoch, records: int, metrics: Mapping[str, float | None]) -> None:
        """Adds trained records to the totals."""
        self.terms.acknowledge()
        self.totals.records = capped(self.totals.records + records)
        if self.kind == EVALUATION:
            self._evaluation(epoch.number).add(metrics, records)

    def dropped_key(self, index: int, record: int | None) -> int:
        """Returns the key in `dropped`: the task, or the bad record if epochs permute records."""
        key = -1 - index if record is None else record
        return key if self._is_record_order else index

    def fail(
        self,
        epoch: Epoch,
        index: int,
        error: str,
        transient: bool | None,
        record: int | None = None,
    ) -> bool:
        """Counts a failure of a leased task: the task is leased again later, or dropped after too many failures.

        Args:
            epoch: The epoch of the task.
            index: The task.
            error: The trainer's text.
            transient: Whether the storage failed, and not the data; None for a failure in the journal
                of an older master, which leased the task again at once.
            record: The record that caused the failure, if known.

        Returns:
            Whether the task was dropped.
        """
        task = epoch.outstanding[index]
        if transient is not None:
            self.wave.add(f"{epoch.number}/{index}", error, transient=transient)
            task.tries += 1
        outage = self.outage
        task.failures += not (outage and transient)  # storage failures in an outage do not count
        budget = PATIENT_BUDGET if outage or transient else FAILURE_BUDGET
        key = self.dropped_key(index, record)
        again = transient is not None and key in self.dropped
        if task.failures < (1 if again else budget):
            if transient is None:
                epoch.give_back(index)
            else:
                epoch.pause(index)
            return False
        self.drop(epoch, index, record)
        return True

    def drop(self, epoch: Epoch, index: int, record: int | None = None) -> None:
        """Drops an outstanding task of an open epoch; `record` is the record that caused this, if known."""
        lost = self.remaining(epoch, index)
        epoch.finish(index, dropped=True)
        self.wave.drop(f"{epoch.number}/{index}")
        if self.partitioning.count is not None:
            self.dropped[self.dropped_key(index, record)] = None
        self.totals.dropped_tasks += 1
        self.totals.dropped_records = capped(self.totals.dropped_records + lost)
        self.advance()

    def hopeless(self, max_dropped_share: float) -> str:
        """Returns why the job cannot succeed with this data set; "" if it still can.

        Args:
            max_dropped_share: The share of tasks that may be dropped, 0 to 1.
        """
        count = self.partitioning.count
        dropped = self.totals.dropped_tasks if count is None else len(self.dropped)
        if dropped > max_dropped(count, self.totals.tasks, max_dropped_share):
            number = f"{dropped}" if count is None else f"{dropped} of {count}"
            return f"{number} tasks of {self.name} were dropped"
        none_done = self.totals.dropped_tasks and not self.totals.records
        if self.complete and none_done and self.kind != EVALUATION:
            return f"no task of {self.name} was done: all were dropped"
        if self.wave.full and not self.totals.tasks and not self.wave.transient:
            return f"{len(self.wave.tasks)} tasks of {self.name} failed, and none was done"
        return ""

    def advance(self) -> None:
        """Closes complete epochs, and opens the next ones that may begin."""
        for number in [n for n, epoch in self.open.items() if epoch.complete]:
            del self.open[number]
            if self.kind == EVALUATION:
                self._evaluation(number).complete = True
                self._remove_old_evaluations()
        while self.opened < self.epochs and self._may_begin():
            self._begin()

    def ensure_open(self, number: int) -> Epoch | None:
        """Returns an open epoch; begins it if another master may have begun it after its last snapshot.

        Returns:
            None if the epoch is complete, or too far ahead.
        """
        most = _MAX_OPEN if self.kind == EVALUATION else _MAX_ADOPTED
        if number >= min(self.open, default=self.opened) + most:
            return None
        while self.opened <= number < self.epochs:
            self._begin()
        return self.open.get(number)

    def discard_evaluations(self, version: int) -> None:
        """Discards the results of all versions after the one to which the model was set back."""
        for evaluation in self.evaluations:
            if evaluation.model_version > version:
                evaluation.discard()

    def _evaluation(self, number: int) -> Evaluation:
        """Returns the evaluation of an open epoch."""
        return self.evaluations[number - self.epochs]

    def _remove_old_evaluations(self) -> None:
        """Removes the oldest complete evaluations while there are too many, or too many metrics."""
        metrics = sum(len(evaluation.sums) for evaluation in self.evaluations)
        while self.evaluations[0].complete and (
            len(self.evaluations) > MAX_EVALUATIONS or metrics > _MAX_KEPT_METRICS
        ):
            metrics -= len(self.evaluations.pop(0).sums)

    def _begin(self) -> None:
        number = self.opened
        self.open[number] = Epoch(number, self.partitioning.bound, self.order_of(number))
        self.opened += 1

    def _may_begin(self) -> bool:
        if not self.open:
            return True
        exhausted = all(epoch.exhausted for epoch in self.open.values())
        return bool(self.shape["overlap"]) and exhausted and len(self.open) < _MAX_OPEN

    def order_of(self, number: int) -> TaskOrder:
        """Returns the order in which the tasks of an epoch are leased."""
        count = self.partitioning.count
        return TaskOrder(1 if count is None else count, self.shape["shuffle_seed"], number)

    def progress(self) -> Json:
        """Returns the progress for the status: a few numbers, no matter how large the data set is."""
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
            "failing_tasks": sum(epoch.failing for epoch in self.open.values()),
            "redone_records": self.rewinds.redone_records,
            "outage": self.wave.error if self.outage else "",
            "complete": self.complete,
            "term": self.terms.acknowledged,
        }

    def dump(self) -> Json:
        """Returns the data set as JSON; see `load`."""
        return {
            "shape": self.shape,
            "epochs": self.epochs,
            "opened": self.opened,
            "open": [epoch.dump() for epoch in self.open.values()],
            "totals": self.totals.dump(),
            "steps": self.steps,
            "rounds": [evaluation.dump() for evaluation in self.evaluations],
            "terms": self.terms.dump(),
            **({"dropped": list(self.dropped)} if self.dropped else {}),
            **({"wave": self.wave.dump()} if self.wave.tasks else {}),
            **({"rewinds": self.rewinds.dump()} if self.rewinds.count else {}),
        }

    @classmethod
    def load(cls, name: str, dumped: Json, steps: int = 0) -> "Dataset":
        """Returns the data set that `dump` wrote.

        Args:
            name: Its name.
            dumped: The result of `dump`.
            steps: The steps of all data sets together. They are used for a snapshot of an older
                master, which did not count steps per data set.
        """
        dataset = cls(name, dumped["shape"])
        dataset.epochs, dataset.opened = dumped["epochs"], dumped["opened"]
        count = dataset.partitioning.bound
        dataset.open = {
            epoch["number"]: Epoch.load(epoch, count, dataset.order_of(epoch["number"]))
            for epoch in dumped["open"]
        }
        dataset.totals = DatasetTotals.load(dumped["totals"])
        dataset.steps = dumped.get("steps", steps)
        dataset.evaluations = [Evaluation.load(evaluation) for evaluation in dumped["rounds"]]
        dataset.dropped = dict.fromkeys(dumped.get("dropped", ()))
        dataset.terms = Terms.load(dumped.get("terms"))
        if "wave" in dumped:
            dataset.wave = FailureWave.load(dumped["wave"])
        if "rewinds" in dumped:
            dataset.rewinds = RewindLog.load(dumped["rewinds"])
        return dataset
