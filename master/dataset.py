"""A data set: its open epochs, totals over all epochs, and its evaluations."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass

from edl_protocol.master import MAX_EVALUATIONS

from master.bounds import capped
from master.epoch import Epoch
from master.evaluation import Evaluation
from master.failure_wave import FailureWave
from master.failures import max_dropped
from master.partitioning import Partitioning, Span
from master.rewind_log import RewindLog
from master.shuffle import TaskOrder
from master.terms import Terms
from master.types import Json

TRAINING, EVALUATION, EXPORT = "training", "evaluation", "export"
FAILURE_BUDGET = 3
"""Failures after which a task is dropped. Disruptions and outages do not count."""
PATIENT_BUDGET = 8
"""As above, of failures of the storage, and of other errors while many tasks fail alike, which may
be failures of a storage's own client. Their pauses last a minute and a half together."""
_MAX_FAILING = 16
"""In an outage, tasks that were never leased wait while so many others fail."""
_MAX_FAILING_EVER = 1_024
"""As above without an outage: a trainer that can read nothing may fail tasks by the thousand, while
all others go on. Those train the failed ones then."""
_MAX_OPEN = 8
"""Epochs that may overlap, where the description allows it."""
_MAX_ADOPTED = 256
"""Epochs that another master may have begun beyond the oldest open one, after its last snapshot.
Evaluations hold metrics, and run one after the other: of these, as many as may overlap."""
_MAX_KEPT_METRICS = 8_000
"""Metrics of all evaluations of a data set together; beyond it the oldest evaluations are removed."""


@dataclass(slots=True)
class DatasetTotals:
    """Numbers of tasks and records that are done or dropped, over all epochs."""

    tasks: int = 0
    records: int = 0
    dropped_tasks: int = 0
    dropped_records: int = 0


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
        self.steps = 0  # of all trainers, in its tasks
        self.dropped: dict[int, None] = {}
        """Keys of tasks that were dropped in any epoch, and not done in a later one; not of streams."""
        self._is_record_order = shape.get("record_order") is not None
        self.wave = FailureWave()
        self.evaluations: list[Evaluation] = []
        """The newest evaluations, one for each epoch up to the last."""
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
        """Queues one more evaluation, behind all earlier ones, unless this version has one.

        One that ended without a result, because its model was gone, is done again.
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
        """Whether no more evaluations are accepted until some pending ones are complete."""
        pending = sum(not evaluation.complete for evaluation in self.evaluations)
        return pending >= MAX_EVALUATIONS

    def lease(self, trainer: str, base: int, want: int) -> list[Json]:
        """Leases the next tasks, all of one epoch; a task must be free.

        Args:
            trainer: The trainer that gets them.
            base: Attempts are greater than this.
            want: The most tasks; at least one is leased.

        Returns:
            The leases as in the protocol, without `lease_s`.
        """
        fresh = self._leases_fresh
        epoch = next(e for e in self.open.values() if e.is_free(trainer, fresh=fresh))
        leases: list[Json] = []
        base = max(base, self.rewinds.base)
        while len(leases) < want and epoch.is_free(trainer, fresh=fresh):
            lease = epoch.lease(trainer, base, fresh=fresh)
            leases.append(self.lease_json(epoch.number, *lease))
        self.advance()
        return leases

    def task(self, epoch: int, index: int) -> str:
        """The name of a task, by which trainers report it."""
        return f"{self.name}/{epoch}/{index}"

    def lease_json(self, epoch: int, index: int, attempt: int) -> Json:
        """A lease as in the protocol."""
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
        """Whether a task can be leased to a trainer now."""
        fresh = self._leases_fresh
        return any(epoch.is_free(trainer, fresh=fresh) for epoch in self.open.values())

    @property
    def outage(self) -> bool:
        """Whether its tasks fail one after the other for a cause that may pass."""
        return self.wave.is_outage(any_done=self.totals.tasks > 0)

    @property
    def _leases_fresh(self) -> bool:
        """Whether tasks that were never leased may be: those that failed try first if there are many.

        Else an outage, or one broken trainer, could leave a million of failed tasks to remember.
        """
        most = _MAX_FAILING if self.outage else _MAX_FAILING_EVER
        return sum(epoch.failing for epoch in self.open.values()) < most

    @property
    def leased(self) -> int:
        """Number of tasks that are leased now."""
        return sum(epoch.leased for epoch in self.open.values())

    def span(self, index: int) -> Span:
        """The records of a task."""
        return self.partitioning.span(index)

    def remaining(self, epoch: Epoch, index: int) -> int:
        """How many records of an outstanding task are not trained and counted."""
        return self.span(index).size - epoch.outstanding[index].trained

    def accept(self, epoch: Epoch, index: int, metrics: Mapping[str, float | None]) -> int:
        """Marks a task as done and adds it to the totals.

        Returns:
            Its number of records.
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
        """Counts the front of a leased task, whose trainer returns the remainder (decision 0033).

        Args:
            epoch: Its epoch.
            index: The task.
            records: The first of its records that were to do, and are trained.
            metrics: Means over these records.

        Returns:
            How many records are counted: none of a kind whose tasks are written as a whole, and
            always fewer than the task has, which is done by an acknowledgement only.
        """
        if self.kind not in (TRAINING, EVALUATION):
            return 0
        counted = min(records, self.remaining(epoch, index) - 1)
        if counted > 0:
            epoch.outstanding[index].trained += counted
            self._count(epoch, counted, metrics)
        return counted

    def _count(self, epoch: Epoch, records: int, metrics: Mapping[str, float | None]) -> None:
        """Adds records that were trained to the totals."""
        self.terms.acknowledge()
        self.totals.records = capped(self.totals.records + records)
        if self.kind == EVALUATION:
            self._evaluation(epoch.number).add(metrics, records)

    def dropped_key(self, index: int, record: int | None) -> int:
        """The key in `dropped`: a task, or its bad record where epochs permute records."""
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
        """Counts a failure of a leased task: it is leased again later, or dropped after too many.

        Args:
            epoch: Its epoch.
            index: The task.
            error: The trainer's text.
            transient: Whether the storage failed, and not the data; None for a failure of an older
                master, whose task is leased again at once.
            record: The record at fault, where it is known.

        Returns:
            Whether it was dropped.
        """
        task = epoch.outstanding[index]
        if transient is not None:
            self.wave.add(f"{epoch.number}/{index}", error, transient=transient)
            task.tries += 1
        outage = self.outage
        task.failures += not (outage and transient)  # those end with the outage, or the job
        budget = PATIENT_BUDGET if outage or transient else FAILURE_BUDGET
        key = self.dropped_key(index, record)
        again = transient is not None and key in self.dropped
        if task.failures < (1 if again else budget):
            epoch.give_back(index) if transient is None else epoch.pause(index)
            return False
        self.drop(epoch, index, record)
        return True

    def drop(self, epoch: Epoch, index: int, record: int | None = None) -> None:
        """Drops an outstanding task of an open epoch, because of a record where it is known."""
        lost = self.remaining(epoch, index)
        epoch.finish(index, dropped=True)
        self.wave.drop(f"{epoch.number}/{index}")
        if self.partitioning.count is not None:
            self.dropped[self.dropped_key(index, record)] = None
        self.totals.dropped_tasks += 1
        self.totals.dropped_records = capped(self.totals.dropped_records + lost)
        self.advance()

    def hopeless(self, max_dropped_share: float) -> str:
        """Why no job can succeed with this data set; "" while it can.

        Args:
            max_dropped_share: As in `max_dropped`.
        """
        count = self.partitioning.count
        dropped = self.totals.dropped_tasks if count is None else len(self.dropped)
        if dropped > max_dropped(count, self.totals.tasks, max_dropped_share):
            of = "" if count is None else f" of {count}"
            return f"{dropped}{of} tasks of {self.name} were dropped"
        none_done = self.totals.dropped_tasks and not self.totals.records
        if self.complete and none_done and self.kind != EVALUATION:
            return f"no task of {self.name} was done: all were dropped"
        if self.wave.full and not self.totals.tasks and not self.wave.transient:
            return f"{len(self.wave.tasks)} tasks of {self.name} failed, and none was done"
        return ""

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
        most = _MAX_OPEN if self.kind == EVALUATION else _MAX_ADOPTED
        if number >= min(self.open, default=self.opened) + most:
            return None
        while self.opened <= number < self.epochs:
            self._begin()
        return self.open.get(number)

    def discard_evaluations(self, version: int) -> None:
        """Discards the results of later versions of the model, which was set back to this one."""
        for evaluation in self.evaluations:
            if evaluation.model_version > version:
                evaluation.discard()

    def _evaluation(self, number: int) -> Evaluation:
        """The evaluation of an open epoch."""
        return self.evaluations[number - self.epochs]

    def _remove_old_evaluations(self) -> None:
        """Removes the oldest complete evaluations while there are too many, or too many metrics."""
        metrics = sum(len(evaluation.sums) for evaluation in self.evaluations)
        while self.evaluations[0].complete and (
            len(self.evaluations) > MAX_EVALUATIONS or metrics > _MAX_KEPT_METRICS
        ):
            metrics -= len(self.evaluations.pop(0).sums)

    def _begin(self) -> None:
        self.open[self.opened] = self._epoch(self.opened)
        self.opened += 1

    def _may_begin(self) -> bool:
        if not self.open:
            return True
        exhausted = all(epoch.exhausted for epoch in self.open.values())
        return bool(self.shape["overlap"]) and exhausted and len(self.open) < _MAX_OPEN

    def _epoch(self, number: int) -> Epoch:
        return Epoch(number, self.partitioning.bound, self.order_of(number))

    def order_of(self, number: int) -> TaskOrder:
        """The order in which the tasks of an epoch are leased."""
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
            "failing_tasks": sum(epoch.failing for epoch in self.open.values()),
            "redone_records": self.rewinds.redone_records,
            "outage": self.wave.error if self.outage else "",
            "complete": self.complete,
            "term": self.terms.acknowledged,
        }

    def dump(self) -> Json:
        """The data set as JSON; see `load`."""
        return {
            "shape": self.shape,
            "epochs": self.epochs,
            "opened": self.opened,
            "open": [epoch.dump() for epoch in self.open.values()],
            "totals": list(astuple(self.totals)),
            "steps": self.steps,
            "rounds": [evaluation.dump() for evaluation in self.evaluations],
            "terms": self.terms.dump(),
            **({"dropped": list(self.dropped)} if self.dropped else {}),
            **({"wave": self.wave.dump()} if self.wave.tasks else {}),
            **({"rewinds": self.rewinds.dump()} if self.rewinds.count else {}),
        }

    @classmethod
    def load(cls, name: str, dumped: Json, steps: int = 0) -> "Dataset":
        """The data set that `dump` wrote; one of an earlier version has made these steps at most."""
        dataset = cls(name, dumped["shape"])
        dataset.epochs, dataset.opened = dumped["epochs"], dumped["opened"]
        count = dataset.partitioning.bound
        dataset.open = {
            epoch["number"]: Epoch.load(epoch, count, dataset.order_of(epoch["number"]))
            for epoch in dumped["open"]
        }
        dataset.totals = DatasetTotals(*dumped["totals"])
        dataset.steps = dumped.get("steps", steps)
        dataset.evaluations = [Evaluation(*fields) for fields in dumped["rounds"]]
        dataset.dropped = dict.fromkeys(dumped.get("dropped", ()))
        dataset.terms = Terms.load(dumped.get("terms"))
        dataset.wave = FailureWave(*dumped.get("wave", ()))
        dataset.rewinds = RewindLog(*dumped.get("rewinds", ()))
        return dataset
