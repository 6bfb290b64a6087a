"""Leases of tasks: granted, acknowledged, failed and returned. Pure."""

from collections.abc import Mapping

from master.bounds import capped
from master.commands import Acknowledgement, LeaseEntry, More, TaskFailure, Work
from master.dataset_registry import DatasetRegistry
from master.failures import Failures
from master.task_queue import TaskQueue
from master.trainers import Trainer, TrainerRegistry
from master.types import Json

ACCEPTED, STALE, UNKNOWN = "accepted", "stale", "unknown"
"""Results of a report about a leased task."""


class Leases:
    """What trainers do with the tasks that they lease, and how much work is lost with leases.

    Trainers and epochs list the leases themselves: this keeps both lists the same.
    """

    def __init__(self, registry: DatasetRegistry, queue: TaskQueue, failures: Failures) -> None:
        """Starts without leases.

        Args:
            registry: The data sets whose tasks are leased.
            queue: The order in which they are leased.
            failures: Where failures are counted.
        """
        self._registry = registry
        self._queue = queue
        self._failures = failures
        self.lost_records = 0
        """Records that were trained, but not acknowledged when the lease ended: trained again."""

    def grant(self, trainer: Trainer, call: Work | More, base: int) -> list[Json]:
        """Leases tasks to a trainer, as many as it wants and are free.

        Args:
            trainer: The trainer that gets them.
            call: Its call, with the data sets that it asks for.
            base: Attempts are greater than this.

        Returns:
            The leases as in the protocol, without `lease_s`.
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
        """Marks a task that a trainer leases as done."""
        task = entry.task
        place = self._registry.find(task)
        if place is None:  # pragma: no cover - a trainer's leases are of open epochs
            return
        trainer.leases.pop(task, None)
        trainer.acknowledge(task, entry.attempt)
        records = place.dataset.accept(place.epoch, place.index, entry.metrics or {})
        steps = entry.steps or 0
        trainer.records = capped(trainer.records + records)
        trainer.tasks += 1
        trainer.steps = capped(trainer.steps + steps)
        self._queue.add_steps(steps)

    def fail(self, trainer: Trainer, entry: TaskFailure) -> str:
        """Counts a failure of a task that a trainer leases; returns the result of the report."""
        task = entry.task
        place = self._registry.find(task)
        if trainer.leases.get(task) != entry.attempt or place is None:
            return self._refusal(task)
        del trainer.leases[task]
        trainer.failures += 1
        error = entry.error if entry.record is None else f"record {entry.record}: {entry.error}"
        dropped = place.dataset.fail(place.epoch, place.index)
        self._failures.add(task, trainer.name, error, dropped=dropped)
        return ACCEPTED

    def take_back(self, trainer: Trainer, entry: LeaseEntry) -> str:
        """Ends a lease that a trainer returns; returns the result of the report."""
        if trainer.leases.get(entry.task) != entry.attempt:
            return self._refusal(entry.task)
        self.end(trainer, entry.task, entry.trained or 0)
        return ACCEPTED

    def end(self, trainer: Trainer, task: str, trained: int = 0) -> None:
        """Ends a lease: the task is to do again, with the records of it that were trained."""
        del trainer.leases[task]
        place = self._registry.find(task)
        if place is not None:
            place.epoch.give_back(place.index)
            self.lost_records = capped(self.lost_records + min(trained, place.size))

    def end_all(self, trainer: Trainer, trained: Mapping[str, int]) -> None:
        """Ends all leases of a trainer.

        Args:
            trainer: The trainer.
            trained: Task -> records of it that the trainer had trained.
        """
        for task in list(trainer.leases):
            self.end(trainer, task, trained.get(task, 0))

    def holds(self, trainer: str, task: str, attempt: int) -> bool:
        """Whether a trainer holds exactly this lease."""
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
        """The result of a report about a task that the trainer does not lease."""
        return STALE if self._registry.exists(task) else UNKNOWN

    def dump(self) -> Json:
        """The lost records as JSON, see `load`; the leases are those of trainers and epochs."""
        return {"lost_records": self.lost_records}

    def load(self, dumped: Json, trainers: TrainerRegistry) -> None:
        """Restores what `dump` wrote, and the lists of trainers from those of epochs.

        Earlier versions wrote trainers' lists while they changed. Where both differ in a snapshot,
        every master that resumed from it would end.

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
