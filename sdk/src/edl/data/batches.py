"""The training loop: `for batch in edl.batches(data, 32)` over records that the master leases.

A task is acknowledged after the step that trained on its last record, that is, when the loop asks for
the next batch or ends normally. `break` and exceptions hand back tasks that are not acknowledged.
"""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, final

from edl.data.prefetch import Batch, PrefetchQueue
from edl.data.progress import Progress
from edl.data.work_fetcher import Trim, WorkFetcher
from edl.errors import DataError, EdlError
from edl.master import protocol, variables
from edl.master.leases import Portion
from edl.master.session import Loop, Session, session
from edl.overriding import override
from edl.sources.base import Dataset
from edl.sources.leased_records import LeasedRecords, shuffled_shape

log = logging.getLogger("edl")

KINDS = ("training", "evaluation", "prediction")
_PREFETCH = 4
_POLL_S = 0.5
_CLOSE_S = 1.0
_BATCHES_PER_TASK = 8
_MIN_TASKS = 64
"""Minimum number of tasks per data set, so that several trainers share even a small data set evenly."""


def batches(
    dataset: Dataset,
    batch_size: int,
    *,
    epochs: int | None = None,
    shuffle_seed: int | None = None,
    shuffle: str = "records",
    task_records: int | None = None,
    kind: str = "training",
    overlap: bool = False,
    prefetch: int = _PREFETCH,
    idle_s: float | None = None,
    member: Session | None = None,
) -> Batches:
    """Returns a loop over batches of this trainer's share of a data set.

    All trainers of a job must pass the same arguments: the master keeps the first description of a data
    set and refuses a different one. Batches hold `batch_size` records; the last ones of an epoch may be
    smaller.

    Args:
        dataset: Created by `edl.from_arrays` or another `edl.from_...` function.
        batch_size: Records per step.
        epochs: How often each record is trained on; 0 for evaluations that run only on request. The default
            is EDL_EPOCHS for training, otherwise 1.
        shuffle_seed: Seed for shuffling records (in evaluations and predictions: tasks). Each epoch has
            another order, which is the same in all trainers. None keeps the original order.
        shuffle: "records", or "tasks" to keep a task's records together, because some sources read
            slowly in random order. Endless streams and sources without `pick` always shuffle tasks.
        task_records: Number of records that are leased and acknowledged together; by default about 8
            batches, fewer for small data sets.
        kind: "training", "evaluation" or "prediction".
        overlap: Whether an epoch may start while other trainers still train on the previous one.
        prefetch: Number of batches to read ahead.
        idle_s: The loop yields None whenever no batch has been available for this many seconds because
            other trainers hold the remaining tasks. Programs whose trainers wait for each other in each
            step need this.
        member: This trainer's session; the process's session by default.

    Raises:
        DataError: An argument is out of range.
        SettingError: EDL_EPOCHS is not a whole number.
    """
    _at_least(1, prefetch=prefetch)
    description = describe(
        dataset,
        batch_size,
        epochs=epochs,
        shuffle_seed=shuffle_seed,
        shuffle=shuffle,
        task_records=task_records,
        kind=kind,
        overlap=overlap,
    )
    return Batches(dataset, batch_size, description, member, prefetch=prefetch, idle_s=idle_s)


def describe(
    dataset: Dataset,
    batch_size: int,
    *,
    epochs: int | None = None,
    shuffle_seed: int | None,
    shuffle: str = "records",
    task_records: int | None,
    kind: str = "training",
    overlap: bool = False,
) -> protocol.Json:
    """Returns the description of a data set for the master; takes the arguments of `batches`.

    Raises:
        DataError: An argument is out of range.
        SettingError: EDL_EPOCHS is not a whole number.
    """
    if kind not in KINDS:
        raise DataError(f"kind is {kind!r}: it must be one of {', '.join(KINDS)}")
    _at_least(1, batch_size=batch_size)
    if epochs is None:
        epochs = variables.epochs() if kind == "training" else 1
    _at_least(0 if kind == "evaluation" else 1, epochs=epochs)
    if task_records is not None:
        _at_least(1, task_records=task_records)
    seed = shuffle_seed if kind == "training" else None
    return {
        **shuffled_shape(dataset.source, seed, shuffle, names_files=kind == "prediction"),
        "task_records": task_records or _task_records(dataset, batch_size),
        "epochs": epochs,
        "shuffle_seed": shuffle_seed,
        "kind": kind,
        "overlap": overlap,
    }


@dataclass(frozen=True)
class DataSchedule:
    """The number of epochs, the order and the task size for training; `batches` explains the fields."""

    epochs: int | None = None
    shuffle_seed: int | None = None
    shuffle: str = "records"
    task_records: int | None = None

    def describe(self, dataset: Dataset, batch_size: int, *, overlap: bool) -> protocol.Json:
        """Returns the description of a data set for the master.

        Args:
            dataset: The data set, the same in all trainers.
            batch_size: Records per step.
            overlap: Whether an epoch may start while other trainers still train on the previous one.

        Raises:
            DataError: A value is out of range.
            SettingError: EDL_EPOCHS is not a whole number.
        """
        return describe(
            dataset,
            batch_size,
            epochs=self.epochs,
            shuffle_seed=self.shuffle_seed,
            shuffle=self.shuffle,
            task_records=self.task_records,
            overlap=overlap,
        )


@final
class Batches(Loop):
    """A loop over batches that can be iterated once; its attributes describe the current batch."""

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        description: dict[str, Any],
        member: Session | None,
        *,
        prefetch: int = _PREFETCH,
        idle_s: float | None = None,
        trim: Trim | None = None,
    ) -> None:
        self._dataset = dataset
        self.description = description
        """The description of the data set, the same in all trainers of the job."""
        self._idle_s = idle_s
        self._session = session() if member is None else member
        self._queue = PrefetchQueue(
            LeasedRecords(dataset.source, description),
            self._session.lease_table,
            batch_size,
            prefetch,
            description["task_records"],
        )
        kind = description["kind"]
        self._fetcher = WorkFetcher(self._session, self._queue, dataset.name, kind, trim=trim)
        self._metrics: dict[str, float] = {}
        self._batch: Batch | None = None
        self._steps: weakref.ref[Generator[Any, None, None]] | None = None
        """A weak reference, so that `break` ends the loop at once instead of at a later garbage collection."""

    @property
    def epoch(self) -> int:
        """The epoch of the current batch, starting at 0."""
        return self._current().portions[0].lease.epoch

    @property
    def records(self) -> int:
        """Number of records in the current batch."""
        return self._current().size

    @property
    def portions(self) -> tuple[Portion, ...]:
        """The leases of the current batch's records in order, each with its number of records."""
        return self._current().portions

    @property
    def model_version(self) -> int | None:
        """The model version to evaluate; None in other loops."""
        return self._current().portions[0].lease.model_version

    def report(self, **metrics: float) -> None:
        """Reports metrics of the current batch as means over its records, for example `accuracy=0.93`.

        Values that are not finite, such as a NaN loss, are logged and left out.
        """
        self._current()
        for name, value in metrics.items():
            if math.isfinite(value):
                self._metrics[name] = float(value)
            else:
                log.warning("metric %s is %s: not reported", name, float(value))

    @override
    def wake(self, error: EdlError | None) -> None:
        """Ends the loop after the current batch; the session calls this when it stops."""
        self._queue.end(error)

    def close(self) -> None:
        """Ends the loop early and hands back its tasks, as `break` does."""
        steps = None if self._steps is None else self._steps()
        if steps is not None:
            steps.close()

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        """Yields batches; see `batches`."""
        if self._steps is not None:
            raise DataError("this loop was already iterated: call edl.batches again for another")
        steps = self._run()
        self._steps = weakref.ref(steps)
        return steps

    def _run(self) -> Generator[Any, None, None]:
        member, queue = self._session, self._queue
        member.join()
        description = member.describe(self._dataset.name, self.description)
        progress = Progress(self._dataset.name, _all_records(description))
        counts = member.lease_table.counts_of(self._dataset.name)
        member.register(self)
        self._fetcher.start()
        threading.Thread(target=queue.read, name="edl-reader", daemon=True).start()
        whole = False
        try:
            while True:
                batch = self._next()
                if batch is None and not self._queue.ended:
                    yield None
                    continue
                if batch is None:
                    break
                self._batch = batch
                yield batch.data
                finished = member.lease_table.record_step(batch.portions, self._metrics)
                self._metrics.clear()
                member.stepped()
                if finished:
                    with queue.lock:
                        queue.call_due.notify()
                progress.step(self.epoch, counts)
            whole = not member.stopping
        finally:
            self._batch = None
            self._close()
            progress.end(counts, whole=whole)
        member.check()

    def _next(self) -> Batch | None:
        """Returns the next batch with a valid lease; None at the end, or after `idle_s` without a batch."""
        while True:
            batch = self._queue.next(_POLL_S if self._idle_s is None else self._idle_s)
            if batch is not None:
                if any(
                    self._session.lease_table.is_active(portion.lease) for portion in batch.portions
                ):
                    return batch
            elif self._queue.ended:
                return None
            else:
                self._fetcher.check_patience(self._session.settings.patience_s)
                if self._idle_s is not None:
                    return None

    def _close(self) -> None:
        """Stops the threads and hands back all tasks that are not acknowledged."""
        member = self._session
        self._queue.end()
        self._fetcher.close(_CLOSE_S)
        member.release(self)
        if member.over:
            return
        if member.exits:
            member.leave()
            return
        name = self._dataset.name
        client = member.client()
        if not member.work_calls.flush(client, back=name):
            log.warning("could not hand back tasks of %s; their leases will expire", name)
        client.close()
        member.lease_table.clear(name)

    def _current(self) -> Batch:
        if self._batch is None:
            raise DataError("there is no current batch: use this only inside the loop")
        return self._batch


def _at_least(minimum: int, **arguments: int) -> None:
    for name, value in arguments.items():
        if value < minimum:
            raise DataError(f"{name} is {value}: it must be at least {minimum}")


def _task_records(dataset: Dataset, batch_size: int) -> int:
    """Returns the default task size: 8 batches, or fewer but at least one to get 64 tasks if possible."""
    limit = batch_size * _BATCHES_PER_TASK
    records = _records(dataset.source.shape())
    if records is None:
        return limit
    return max(batch_size, min(limit, records // _MIN_TASKS // batch_size * batch_size))


def _records(shape: dict[str, Any]) -> int | None:
    if "files" in shape:
        return sum(int(file["records"]) for file in shape["files"])
    records = shape.get("records")
    return records if isinstance(records, int) else None


def _all_records(description: dict[str, Any]) -> int | None:
    records, epochs = _records(description), description.get("epochs")
    return records * epochs if records and isinstance(epochs, int) else None
