"""The loop: `for batch in edl.batches(data, 32)` over records that the master leases.

A task is acknowledged after the step that trained on its last record: when the loop asks for the
next batch, or ends by itself. `break` and exceptions hand back what is not acknowledged.
"""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections.abc import Generator, Iterator
from typing import Any, final

from edl import clock, wire
from edl.book import Portion
from edl.courier import Courier
from edl.errors import DataError, EdlError, Unavailable
from edl.feed import Feed
from edl.making import Batch
from edl.process import session
from edl.progress import Progress
from edl.session import Loop, Session
from edl.sources.base import Dataset

log = logging.getLogger("edl")

KINDS = ("training", "evaluation", "prediction")
_LOOK_S = 0.5
_CLOSE_S = 1.0
_BATCHES_A_TASK = 8
_LEAST_TASKS = 64
"""So that some trainers can share even a small data set evenly."""


def batches(
    dataset: Dataset,
    batch_size: int,
    *,
    epochs: int = 1,
    shuffle_seed: int | None = None,
    task_records: int | None = None,
    kind: str = "training",
    overlap: bool = False,
    prefetch: int = 4,
    idle_s: float | None = None,
    member: Session | None = None,
) -> Batches:
    """Batches of this trainer's share of a data set.

    All trainers of a job must ask for the same: the first description wins, another is refused.
    Batches hold `batch_size` records but where an epoch's tasks run out.

    Args:
        dataset: From `edl.from_arrays` and the like.
        batch_size: Records a step trains on.
        epochs: How often each record is trained on; 0 for evaluations that are asked for only.
        shuffle_seed: Orders tasks differently in each epoch; None keeps their order.
        task_records: Records that are leased and acknowledged together; about 8 batches by
            default, less for small data sets.
        kind: "training", "evaluation" or "prediction".
        overlap: Whether an epoch may begin while others still train on the one before.
        prefetch: How many batches to read ahead.
        idle_s: Yields None whenever no batch has come for so long, because others hold what is
            left: for programs whose trainers wait for each other in each step.
        member: This trainer's session; the process's by default.

    Raises:
        DataError: An argument that cannot be.
    """
    _at_least(1, prefetch=prefetch)
    description = describe(
        dataset,
        batch_size,
        epochs=epochs,
        shuffle_seed=shuffle_seed,
        task_records=task_records,
        kind=kind,
        overlap=overlap,
    )
    return Batches(dataset, batch_size, description, prefetch, member, idle_s=idle_s)


def describe(
    dataset: Dataset,
    batch_size: int,
    *,
    epochs: int,
    shuffle_seed: int | None,
    task_records: int | None,
    kind: str = "training",
    overlap: bool = False,
) -> wire.Json:
    """How the master is told of a data set; arguments as those of `batches`.

    Raises:
        DataError: An argument that cannot be.
    """
    if kind not in KINDS:
        raise DataError(f"kind is {kind!r}: it must be one of {', '.join(KINDS)}")
    _at_least(1, batch_size=batch_size)
    _at_least(0 if kind == "evaluation" else 1, epochs=epochs)
    if task_records is not None:
        _at_least(1, task_records=task_records)
    return {
        **dataset.source.shape(),
        "task_records": task_records or _task_records(dataset, batch_size),
        "epochs": epochs,
        "shuffle_seed": shuffle_seed,
        "kind": kind,
        "overlap": overlap,
    }


@final
class Batches(Loop):
    """Iterate over it once; its attributes are about the batch in hand."""

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        description: dict[str, Any],
        prefetch: int,
        member: Session | None,
        *,
        idle_s: float | None = None,
    ) -> None:
        self._dataset = dataset
        self.description = description
        """As all trainers of the job must give it."""
        self._batch_size, self._prefetch, self._idle_s = batch_size, prefetch, idle_s
        self._session = session() if member is None else member
        self._feed = Feed(
            dataset.source, self._session.book, batch_size, prefetch, description["task_records"]
        )
        kind = description["kind"]
        self._courier = Courier(self._session, self._feed, dataset.name, kind)
        self._metrics: dict[str, float] = {}
        self._batch: Batch | None = None
        self._steps: weakref.ref[Generator[Any, None, None]] | None = None
        """Weak: `break` is to end the loop at once, not when a cycle is collected."""

    @property
    def epoch(self) -> int:
        """Of the batch in hand, from 0."""
        return self._hand().portions[0].lease.epoch

    @property
    def records(self) -> int:
        """Number of records of the batch in hand."""
        return self._hand().size

    @property
    def portions(self) -> tuple[Portion, ...]:
        """Whose records the batch in hand holds, in order: leases, and how many of each."""
        return self._hand().portions

    @property
    def model_version(self) -> int | None:
        """Which model an evaluation asks about."""
        return self._hand().portions[0].lease.model_version

    def report(self, **metrics: float) -> None:
        """Metrics of the batch in hand, such as `accuracy=0.93`: means over its records.

        What is no number (a loss that became NaN) is left out, with a line in the log.
        """
        self._hand()
        for name, value in metrics.items():
            if math.isfinite(value):
                self._metrics[name] = float(value)
            else:
                log.warning("metric %s is %s: left out", name, float(value))

    def wake(self, error: EdlError | None) -> None:
        """The session stops: the loop ends after the batch in hand."""
        self._feed.end(error)

    def close(self) -> None:
        """Ends the loop early; `break` does the same, and an error once it is handled."""
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
            raise DataError("this loop has ended: call edl.batches again for another")
        steps = self._run()
        self._steps = weakref.ref(steps)
        return steps

    def _run(self) -> Generator[Any, None, None]:
        member, feed = self._session, self._feed
        member.join()
        found = member.describe(self._dataset.name, self.description)
        progress = Progress(self._dataset.name, _all_records(found))
        counts = member.book.of(self._dataset.name)
        member.register(self)
        self._courier.start()
        threading.Thread(target=feed.read, name="edl-reader", daemon=True).start()
        whole = False
        try:
            while True:
                batch = self._next()
                if batch is None and not self._feed.ended:
                    yield None
                    continue
                if batch is None:
                    break
                self._batch = batch
                yield batch.data
                finished = member.book.trained(batch.portions, self._metrics)
                self._metrics.clear()
                member.stepped()
                if finished:
                    with feed.lock:
                        feed.tell.notify()
                progress.step(self.epoch, counts)
            whole = not member.stopping
        finally:
            self._batch = None
            self._close()
            progress.end(counts, whole=whole)
        member.check()

    def _next(self) -> Batch | None:
        """The next batch that is still worth to be trained on; None at the end, or when idle."""
        while True:
            batch = self._feed.next(_LOOK_S if self._idle_s is None else self._idle_s)
            if batch is not None:
                if any(self._session.book.holds(portion.lease) for portion in batch.portions):
                    return batch
            elif self._feed.ended:
                return None
            else:
                self._lose_patience()
                if self._idle_s is not None:
                    return None

    def _lose_patience(self) -> None:
        since_s, patience_s = self._courier.away_since_s, self._session.settings.patience_s
        if since_s is not None and clock.monotonic_s() - since_s > patience_s:
            text = f"the master has been away for more than {patience_s:g} s (EDL_PATIENCE_S)"
            raise Unavailable(text)

    def _close(self) -> None:
        """Hands back what is left, unless all was acknowledged."""
        member = self._session
        self._feed.end()
        self._courier.close(_CLOSE_S)
        member.release(self)
        if member.over:
            return
        if member.exits:
            member.leave()
            return
        name = self._dataset.name
        client = member.client()
        if not member.settle(client, back=name):
            log.warning("the master did not hear that %s was left: its time-out will tell it", name)
        client.close()
        member.book.clear(name)

    def _hand(self) -> Batch:
        if self._batch is None:
            raise DataError("there is no batch in hand: this is known inside the loop only")
        return self._batch


def _at_least(least: int, **given: int) -> None:
    for name, value in given.items():
        if value < least:
            raise DataError(f"{name} is {value}: it must be at least {least}")


def _task_records(dataset: Dataset, batch_size: int) -> int:
    most = batch_size * _BATCHES_A_TASK
    records = _records(dataset.source.shape())
    if records is None:
        return most
    return max(batch_size, min(most, records // _LEAST_TASKS // batch_size * batch_size))


def _records(shape: dict[str, Any]) -> int | None:
    if "files" in shape:
        return sum(int(file["records"]) for file in shape["files"])
    found = shape.get("records")
    return found if isinstance(found, int) else None


def _all_records(description: dict[str, Any]) -> int | None:
    records, epochs = _records(description), description.get("epochs")
    return records * epochs if records and isinstance(epochs, int) else None
