"""Positions in a data set, and rewinds to them (decision 0032). Pure.

A restored model contains only the records up to a position. A rewind sets the data set back to that
position, so that all other records are trained again.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b

import orjson

from master.bounds import capped
from master.commands import Rewind, Rollback
from master.dataset import EVALUATION, TRAINING, Dataset, DatasetTotals
from master.dataset_registry import DatasetRegistry
from master.epoch import Epoch
from master.leases import TaskQueue
from master.model_history import MAX_REWINDS
from master.rollbacks import JobRollbacks
from master.trainers import Trainer, TrainerRegistry
from runtime.call_checks import Json, RefusedError

_TASK = re.compile(r"(?P<dataset>[^/]*)/(?P<epoch>\d{1,16})/(?P<index>\d{1,16})", re.ASCII)
_MAX_OPEN = 256
"""Maximum number of open epochs at a position."""
_FIELDS_OF_TASKS = ("records", "files", "stream", "task_records", "shuffle_seed")
"""The fields of a description that determine the records of a task, and when it is leased."""


def position(dataset: Dataset) -> Json:
    """Returns the position of a data set: its trained part, and in how many steps it was trained."""
    return {
        "shape": _digest(dataset),
        "opened": dataset.opened,
        "open": [epoch.position() for epoch in dataset.open.values()],
        "totals": dataset.totals.dump(),
        "steps": dataset.steps,
    }


def settled(dataset: Dataset, tasks: list[str]) -> list[str]:
    """Returns the tasks that are done or dropped, so that the position contains them completely."""
    settled = []
    for task in tasks:
        place = _place(dataset, task)
        if place is None:
            continue
        number, index = place
        epoch = dataset.open.get(number)
        is_over = epoch is None or (index not in epoch.outstanding and epoch.was_leased(index))
        if number < dataset.opened and is_over:
            settled.append(task)
    return settled


class Rewinds:
    """Sets data sets back to positions."""

    def __init__(
        self,
        registry: DatasetRegistry,
        trainers: TrainerRegistry,
        queue: TaskQueue,
        rollbacks: JobRollbacks,
    ) -> None:
        """Creates the rewinds of a ledger.

        Args:
            registry: The data sets.
            trainers: All trainers, whose leases of the data set end.
            queue: Counts the steps.
            rollbacks: Counts the records that are trained again.
        """
        self._registry, self._trainers = registry, trainers
        self._queue, self._rollbacks = queue, rollbacks

    def execute(self, trainer: Trainer, command: Rewind) -> Json:
        """Sets a data set back; a repeated call gets the same answer.

        Returns:
            How many records and steps are trained again, and the `base`: leases with attempts up to
            the base are over.

        Raises:
            RefusedError: The position does not belong to this data set, or another process has
                restored a model since.
        """
        dataset = self._registry.by_name.get(command.dataset)
        if dataset is None or dataset.kind != TRAINING:
            text = f"data set {command.dataset!r:.60} of training does not exist: describe it first"
            raise RefusedError(404, text, "dataset")
        log, identity = dataset.rewinds, _identity(command)
        if log.identity != identity:
            _check_fence(dataset, command)
            _check(dataset, command)
            records, steps = self._rewind(dataset, command)
            log.add(identity, _key(command), records, steps)
            if records:
                event = Rollback(
                    trainer.name,
                    trainer.incarnation,
                    command.event,
                    command.reason,
                    steps,
                    records,
                )
                self._rollbacks.add(event, redone=records)
        answer = {"records": log.newest_records, "steps": log.newest_steps}
        return {**answer, "base": log.base}

    def _rewind(self, dataset: Dataset, command: Rewind) -> tuple[int, int]:
        """Sets the data set back, and returns by how many records and steps."""
        records = dataset.totals.records
        for trainer in self._trainers:
            for task in list(trainer.leases):
                if task.partition("/")[0] == dataset.name:
                    del trainer.leases[task]
        _restore(dataset, command)
        if dataset.totals.records:
            dataset.terms.acknowledge()
        target = 0 if command.position is None else int(command.position["steps"])
        steps = self._queue.restore_steps(dataset, target)
        for other in self._registry.by_name.values():
            if other.kind == EVALUATION:
                other.discard_evaluations(command.version)
        return max(0, records - dataset.totals.records), steps


def _identity(command: Rewind) -> str:
    """Returns a text that is the same for a repeated call."""
    if command.term is not None:
        return f"term {command.term}"
    return f"generation {command.generation} {command.ticket}"


def _key(command: Rewind) -> tuple[int, int]:
    """Returns the generation and ticket: they give the order of parameter servers' rewinds."""
    return (command.generation or 0, command.ticket)


def _check_fence(dataset: Dataset, command: Rewind) -> None:
    """Refuses a process whose model is not the newest."""
    log, terms = dataset.rewinds, dataset.terms
    if log.count >= MAX_REWINDS:
        raise RefusedError(409, f"{dataset.name} was set back {MAX_REWINDS} times", "dataset")
    if command.term is not None:
        if (terms.newest, terms.leader) != (command.term, command.incarnation):
            text = f"term {command.term} is over: another process leads since then"
            raise RefusedError(409, text, "term")
    elif command.generation is None:
        raise RefusedError(422, "term: give either a term or a generation", "term")
    elif _key(command) <= log.key:
        generation, ticket = log.key
        text = f"generation {generation} was restored since, with ticket {ticket}"
        raise RefusedError(409, text, "generation")


def _check(dataset: Dataset, command: Rewind) -> None:
    """Refuses a position that does not belong to the data set."""
    # tasks that the model contains beyond the position
    for task, records in command.remaining.items():
        place = _place(dataset, task)
        if place is None:
            raise _wrong("remaining", f"{task!r:.60} is not a task of {dataset.name}")
        if records > dataset.span(place[1]).size:
            raise _wrong("remaining", f"{task!r:.60} has fewer records than {records}")
    if command.position is None:
        return
    # the position itself: it must have the same tasks, and open epochs in order
    target = command.position
    if target["shape"] != _digest(dataset):
        raise _wrong("position.shape", f"it is of other data, or other tasks, than {dataset.name}")
    numbers = [epoch["number"] for epoch in target["open"]]
    ordered = numbers == sorted(set(numbers)) and all(n < target["opened"] for n in numbers)
    if target["opened"] > dataset.epochs or len(numbers) > _MAX_OPEN or not ordered:
        raise _wrong("position.open", f"{dataset.name} has {dataset.epochs} epochs, in order")
    for epoch in target["open"]:
        _check_epoch(dataset, epoch)


def _check_epoch(dataset: Dataset, epoch: Json) -> None:
    """Refuses an epoch with tasks that the data set does not have."""
    bound = dataset.partitioning.bound
    tasks = [index for index, _ in epoch["todo"]]
    indices = [*tasks, *epoch["ahead"]]
    if epoch["cursor"] > bound or not all(map(dataset.partitioning.has, indices)):
        raise _wrong("position.open", f"epoch {epoch['number']} has more than {bound} tasks")
    if len(set(tasks)) < len(tasks) or len(set(epoch["ahead"])) < len(epoch["ahead"]):
        raise _wrong("position.open", f"epoch {epoch['number']} names a task twice")
    for index, trained in epoch["todo"]:
        if trained >= dataset.span(index).size:
            text = f"task {index} of epoch {epoch['number']} has no records left"
            raise _wrong("position.open", text)


def _wrong(field: str, text: str) -> RefusedError:
    return RefusedError(422, f"{field}: {text}: the data cannot be set back to it", field)


def _restore(dataset: Dataset, command: Rewind) -> None:
    """Sets a data set to a checked position."""
    target = command.position
    dataset.opened = 0 if target is None else target["opened"]
    totals = DatasetTotals() if target is None else DatasetTotals.load(target["totals"])
    dataset.totals, dataset.open = totals, {}
    bound = dataset.partitioning.bound
    for epoch in () if target is None else target["open"]:
        number = epoch["number"]
        dataset.open[number] = Epoch.at(epoch, bound, dataset.order_of(number))
    dataset.wave.clear()
    remaining = []
    for task, records in command.remaining.items():
        _, number, index = task.split("/")
        remaining.append((int(number), int(index), records))
    # by epoch, because a later epoch opens all epochs before it
    for epoch_number, task_index, records in sorted(remaining, key=lambda entry: entry[0]):
        _restore_task(dataset, epoch_number, task_index, records)
    dataset.advance()


def _restore_task(dataset: Dataset, number: int, index: int, remaining: int) -> None:
    """Marks as trained those records of a task that the model contains beyond the position."""
    epoch = dataset.ensure_open(number)
    if epoch is None:
        return  # the epoch is complete
    size = dataset.span(index).size
    added, done = epoch.restore(index, size - remaining, size)
    totals = dataset.totals
    totals.records = capped(totals.records + added)
    totals.tasks += done


def _place(dataset: Dataset, task: str) -> tuple[int, int] | None:
    """Returns the epoch and the index of a task; None if the data set has no such task."""
    match = _TASK.fullmatch(task)
    if match is None or match["dataset"] != dataset.name:
        return None
    number, index = int(match["epoch"]), int(match["index"])
    if number >= dataset.epochs or not dataset.partitioning.has(index):
        return None
    return number, index


def _digest(dataset: Dataset) -> str:
    """Returns a fingerprint of how a data set is cut into tasks, and of their order."""
    fields: Mapping[str, object] = {name: dataset.shape.get(name) for name in _FIELDS_OF_TASKS}
    return blake2b(orjson.dumps(fields), digest_size=8).hexdigest()
