"""Leases of tasks: which task is next, and how leases are granted and end. Pure."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from master.bounds import capped
from master.commands import Acknowledgement, LeaseEntry, More, Retry, TaskFailure, Work
from master.dataset import EVALUATION, EXPORT, TRAINING, Dataset
from master.dataset_registry import DatasetRegistry, TaskPlace
from master.failures import Failures, max_dropped
from master.trainers import Trainer, TrainerRegistry
from runtime.call_checks import Json

_OLDER_MOST_DROPPED = 16
"""Number of dropped tasks after which the job fails, in the journal of an older master without
pauses."""
ACCEPTED, STALE, UNKNOWN = "accepted", "stale", "unknown"
"""Results of a report about a leased task."""
_PRIORITY = {EVALUATION: 0, EXPORT: 2}
"""Evaluations are leased first, because trainers wait for their results; the export last."""


class TaskQueue:
    """The free tasks of all data sets, and the number of steps of all trainers.

    Training may end after a maximum number of steps.
    """

    def __init__(self, registry: DatasetRegistry, max_steps: int | None) -> None:
        """Creates the queue.

        Args:
            registry: The data sets.
            max_steps: Steps of all trainers together after which training ends.
        """
        self._registry = registry
        self._max_steps = max_steps
        self.steps = 0

    @property
    def complete(self) -> bool:
        """Whether all data sets are done, or training has made its maximum number of steps.

        A job is not complete while its only data set waits for a first evaluation request.
        """
        datasets = self._registry.by_name.values()
        any_epochs = any(dataset.epochs for dataset in datasets)
        return any_epochs and all(self._is_over(dataset) for dataset in datasets)

    @property
    def _enough(self) -> bool:
        """Whether training has made its maximum number of steps, so that remaining data is not used."""
        return self._max_steps is not None and self.steps >= self._max_steps

    def add_steps(self, dataset: Dataset, steps: int) -> None:
        """Counts steps of a trainer in a data set."""
        self.steps = capped(self.steps + steps)
        dataset.steps = capped(dataset.steps + steps)

    def restore_steps(self, dataset: Dataset, steps: int) -> int:
        """Sets the steps in one data set to the steps of a restored model; returns how many steps are lost."""
        lost = dataset.steps - steps
        dataset.steps, self.steps = steps, capped(max(0, self.steps - lost))
        return max(0, lost)

    def next(self, call: Work | More) -> Dataset | None:
        """Returns the data set of the next free task; None if no task is free.

        Args:
            call: The call, with the kinds and names of the data sets that it asks for.
        """
        for dataset in self._scope(call):
            if dataset.is_free(call.trainer) and self._may_lease(dataset):
                return dataset
        return None

    def is_over(self, call: Work | More) -> bool:
        """Returns whether a call will never get more tasks.

        A data set that is not described yet may still get tasks.
        """
        described = self._registry.by_name
        unknown = not described or not described.keys() >= set(call.datasets or ())
        if unknown and not self.complete:
            return False
        # training that has made its steps gets no more tasks, even if some are still leased
        return all(
            self._is_over(dataset) or (dataset.kind == TRAINING and self._enough)
            for dataset in self._scope(call)
        )

    def _scope(self, call: Work | More) -> Iterator[Dataset]:
        """Returns the data sets that a call asks for, in the order of their leases."""
        kinds, names = call.kinds, call.datasets
        datasets = [
            dataset
            for dataset in self._registry.by_name.values()
            if (kinds is None or dataset.kind in kinds) and (names is None or dataset.name in names)
        ]
        return iter(sorted(datasets, key=lambda dataset: _PRIORITY.get(dataset.kind, 1)))

    def _may_lease(self, dataset: Dataset) -> bool:
        """Returns whether tasks of a data set may be leased.

        Training ends after its maximum number of steps; the export waits for all other data sets.
        """
        if dataset.kind == EXPORT:
            datasets = self._registry.by_name.values()
            return all(self._is_over(other) for other in datasets if other.kind != EXPORT)
        return dataset.kind != TRAINING or not self._enough

    def _is_over(self, dataset: Dataset) -> bool:
        """Returns whether no task of a data set is leased or will be leased."""
        ended = self._enough and dataset.kind == TRAINING and not dataset.leased
        return ended or dataset.complete

    def dump(self) -> Json:
        """Returns the steps as JSON; see `load`."""
        return {"steps": self.steps}

    def load(self, dumped: Json) -> None:
        """Restores what `dump` wrote."""
        self.steps = dumped["steps"]


class FailingTask(NamedTuple):
    """A failed task that waits for the end of its pause, or for another trainer."""

    task: str
    tries: int
    paused: bool


class Leases:
    """The leases of all trainers, and the work that is lost when leases end.

    Trainers and epochs both list the leases; this class keeps the two lists equal.
    """

    def __init__(
        self,
        registry: DatasetRegistry,
        queue: TaskQueue,
        failures: Failures,
        max_dropped_share: float,
    ) -> None:
        """Starts without leases.

        Args:
            registry: The data sets whose tasks are leased.
            queue: The order of their tasks.
            failures: Counts the failures.
            max_dropped_share: The share of a data set's tasks that may be dropped, 0 to 1.
        """
        self._max_dropped_share = max_dropped_share
        self._registry = registry
        self._queue = queue
        self._failures = failures
        self.lost_records = 0
        """Records that were trained but not acknowledged when their lease ended; they are trained
        again."""

    def grant(self, trainer: Trainer, call: Work | More, base: int) -> list[Json]:
        """Leases free tasks to a trainer, up to the number that it wants.

        Args:
            trainer: The trainer that gets the leases.
            call: Its call, with the data sets that it asks for.
            base: The attempts of the leases are greater than this.

        Returns:
            The leases of the answer, see the protocol, without `lease_s`.
        """
        want = call.want or 0
        tasks: list[Json] = []
        while len(tasks) < want and (source := self._queue.next(call)) is not None:
            for lease in source.lease(trainer.name, base, want - len(tasks)):
                trainer.leases[lease["task"]] = lease["attempt"]
                tasks.append(lease)
        return tasks

    def acknowledge(self, trainer: Trainer, entry: Acknowledgement) -> str:
        """Accepts a task that a trainer has done; returns the result of the report."""
        task, attempt = entry.task, entry.attempt
        if trainer.leases.get(task) != attempt:
            if trainer.acked.get(task) == attempt:
                return ACCEPTED
            return self._refusal(task)
        self.accept(trainer, entry)
        return ACCEPTED

    def accept(self, trainer: Trainer, entry: Acknowledgement) -> None:
        """Marks a trainer's leased task as done."""
        task = entry.task
        place = self._registry.find(task)
        if place is None:  # pragma: no cover - leased tasks belong to open epochs
            return
        trainer.leases.pop(task, None)
        trainer.acknowledge(task, entry.attempt)
        records = place.dataset.accept(place.epoch, place.index, entry.metrics or {})
        steps = entry.steps or 0
        trainer.records = capped(trainer.records + records)
        trainer.tasks += 1
        trainer.steps = capped(trainer.steps + steps)
        self._queue.add_steps(place.dataset, steps)

    def fail(self, trainer: Trainer, entry: TaskFailure) -> str:
        """Counts a failure of a trainer's leased task; returns the result of the report."""
        task = entry.task
        place = self._registry.find(task)
        if trainer.leases.get(task) != entry.attempt or place is None:
            return self._refusal(task)
        self._count_front(trainer, place, entry.counted or 0, {})
        del trainer.leases[task]
        trainer.failures += 1
        error = entry.error if entry.record is None else f"record {entry.record}: {entry.error}"
        dataset = place.dataset
        dropped = dataset.fail(place.epoch, place.index, entry.error, entry.transient, entry.record)
        self._failures.add(task, trainer.name, error, dropped=dropped)
        if entry.transient is not None:
            reason = dataset.hopeless(self._max_dropped_share)
        else:
            count = sum(d.totals.dropped_tasks for d in self._registry.by_name.values())
            reason = f"{count} tasks were dropped" if count > _OLDER_MOST_DROPPED else ""
        if reason and not self._failures.job_reason:
            self._failures.fail_job(f"{reason}, the last of them {task}: {error}")
        return ACCEPTED

    def end_outage(self, dataset: Dataset, lasted_s: int) -> None:
        """Ends an outage that has lasted too long.

        At the end of the data, a few bad sectors look like an outage. So the failing tasks are
        dropped if all other tasks were leased, and if the limit of dropped tasks allows it.
        Otherwise the job fails.
        """
        epochs = dataset.open.values()
        failing = [(epoch, i) for epoch in epochs for i in (*epoch.paused, *epoch.retries)]
        error, share = dataset.wave.error, self._max_dropped_share
        dropped = {*dataset.dropped, *(dataset.dropped_key(index, None) for _, index in failing)}
        most = max_dropped(dataset.partitioning.count, dataset.totals.tasks, share)
        if not all(e.exhausted for e in epochs) or len(dropped) > most:
            text = f"no task of {dataset.name} could be read for {lasted_s} s: {error}"
            self._failures.fail_job(text)
            return
        for epoch, index in failing:
            dataset.drop(epoch, index)
            task, trainer = dataset.task(epoch.number, index), "the master"
            self._failures.add(task, trainer, f"for {lasted_s} s: {error}", dropped=True)
        if reason := dataset.hopeless(share):
            self._failures.fail_job(f"{reason}: {error}")

    def failing(self) -> Iterator[FailingTask]:
        """Returns the failed tasks that wait for the end of their pause, or for another trainer."""
        for dataset in self._registry.by_name.values():
            for epoch in dataset.open.values():
                for index in epoch.paused:
                    task = dataset.task(epoch.number, index)
                    yield FailingTask(task, epoch.outstanding[index].tries, paused=True)
                for index in epoch.retries:
                    if epoch.outstanding[index].failed_by is not None:
                        task = dataset.task(epoch.number, index)
                        yield FailingTask(task, epoch.outstanding[index].tries, paused=False)

    def retry(self, command: Retry, *, single: bool) -> None:
        """Ends pauses of failed tasks.

        Args:
            command: The tasks.
            single: Whether the job has only one trainer, which may then lease its failed tasks.
        """
        for task in command.ready:
            place = self._registry.find(task)
            if place is not None and place.index in place.epoch.paused:
                endless = place.dataset.partitioning.count is None
                place.epoch.resume(place.index, anyone=single, first=endless)
        for task in command.anyone:
            place = self._registry.find(task)
            if place is not None and place.index in place.epoch.retries:
                place.epoch.allow_anyone(place.index)

    def take_back(self, trainer: Trainer, entry: LeaseEntry) -> str:
        """Ends a lease that a trainer returns; returns the result of the report."""
        place = self._registry.find(entry.task)
        if trainer.leases.get(entry.task) != entry.attempt or place is None:
            return self._refusal(entry.task)
        counted = self._count_front(trainer, place, entry.counted or 0, entry.metrics or {})
        if counted:
            steps = entry.steps or 0
            trainer.steps = capped(trainer.steps + steps)
            self._queue.add_steps(place.dataset, steps)
        self.end(trainer, entry.task, max(0, (entry.trained or 0) - counted))
        return ACCEPTED

    def _count_front(
        self,
        trainer: Trainer,
        place: TaskPlace,
        records: int,
        metrics: Mapping[str, float | None],
    ) -> int:
        """Counts the first records of a task that a trainer gives up; returns how many."""
        counted = 0
        if records:
            counted = place.dataset.count_front(place.epoch, place.index, records, metrics)
        trainer.records = capped(trainer.records + counted)
        return counted

    def end(self, trainer: Trainer, task: str, trained: int = 0) -> None:
        """Ends a lease, so that the task is free again; its trained records are lost."""
        del trainer.leases[task]
        place = self._registry.find(task)
        if place is not None:
            place.epoch.give_back(place.index)
            self.lost_records = capped(self.lost_records + min(trained, place.size))

    def end_all(self, trainer: Trainer, trained: Mapping[str, int]) -> None:
        """Ends all leases of a trainer.

        Args:
            trainer: The trainer.
            trained: Task -> number of its records that the trainer had trained.
        """
        for task in list(trainer.leases):
            self.end(trainer, task, trained.get(task, 0))

    def holds(self, trainer: str, task: str, attempt: int) -> bool:
        """Returns whether a trainer holds exactly this lease."""
        place = self._registry.find(task)
        if place is None:
            return False
        outstanding = place.epoch.outstanding.get(place.index)
        return (
            outstanding is not None
            and outstanding.holder == trainer
            and outstanding.attempt == attempt
        )

    def _refusal(self, task: str) -> str:
        """Returns the result of a report about a task that the trainer does not lease."""
        return STALE if self._registry.exists(task) else UNKNOWN

    def dump(self) -> Json:
        """Returns the number of lost records as JSON; trainers and epochs dump the leases."""
        return {"lost_records": self.lost_records}

    def load(self, dumped: Json, trainers: TrainerRegistry) -> None:
        """Restores what `dump` wrote, and the leases of trainers from the lists of epochs.

        Earlier versions wrote the trainers' lists while the lists changed, so they may differ from
        the epochs' lists. A master that resumed with different lists would stop.

        Args:
            dumped: The snapshot.
            trainers: Its trainers, without leases.
        """
        self.lost_records = dumped["lost_records"]
        for dataset in self._registry.by_name.values():
            for epoch in dataset.open.values():
                for index, outstanding in epoch.outstanding.items():
                    if outstanding.holder is None:
                        continue
                    holder = trainers.find(outstanding.holder)
                    if holder is None:
                        epoch.give_back(index)
                    else:
                        holder.leases[dataset.task(epoch.number, index)] = outstanding.attempt
