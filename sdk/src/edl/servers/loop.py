"""The loop of asynchronous training: pull, compute, push, acknowledge."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from edl import clock
from edl.data.batches import Batches, DataSchedule
from edl.errors import DataError, MasterError
from edl.master.session import Session, session
from edl.servers.client import PserverClient, PushOutcome
from edl.servers.data_rewinder import DataRewinder
from edl.servers.errors import (
    GenerationChanged,
    NonFiniteGradient,
    ServersError,
    ServersUnavailable,
)
from edl.servers.model_spec import ModelSpec
from edl.servers.options import ON_NAN, EpochMeans, OnStep, Step, TrainingResult, check_rules
from edl.servers.worker import Gradients, Ids, Worker
from edl.sources.base import Dataset
from edl_protocol.pserver import Rules

log = logging.getLogger("edl")

MAX_TRIES = 64
"""Number of attempts at one batch if servers reject it as too stale."""
SAVE_EVERY_S = 30.0


def train(
    worker: Worker,
    dataset: Dataset,
    batch_size: int,
    *,
    epochs: int | None = None,
    shuffle_seed: int | None = None,
    shuffle: str = "records",
    task_records: int | None = None,
    max_staleness: int | None = None,
    modulate: bool = False,
    checkpoint_steps: int = 0,
    checkpoint_seconds: float = SAVE_EVERY_S,
    checkpoint_keep: int = 3,
    code: Mapping[str, str] | None = None,
    on_nan: str = "fail",
    overlap: bool = False,
    on_step: OnStep = None,
    member: Session | None = None,
) -> TrainingResult:
    """Trains this trainer's share of a data set; all trainers of the job pass the same arguments.

    Args:
        worker: Computes gradients.
        dataset: Created by `edl.from_arrays` or another `edl.from_...` function.
        batch_size: Records per push.
        epochs: How often each record is trained on; by default EDL_EPOCHS, or 1 if that is not set.
        shuffle_seed: See `edl.batches`.
        shuffle: See `edl.batches`.
        task_records: See `edl.batches`.
        max_staleness: Gradients that are more versions old than this are recomputed; None accepts all.
        modulate: Whether to divide the learning rate of a push by its staleness.
        checkpoint_steps: Versions after which the servers write a checkpoint; 0 turns this rule off.
        checkpoint_seconds: Seconds after which the servers write a checkpoint; 0 turns this rule off.
            If both are 0, there are no checkpoints.
        checkpoint_keep: How many checkpoints to keep.
        code: Name -> text that identifies the program; trainers with different values are refused.
        on_nan: If a loss or gradient is NaN or infinite, "fail" the job or "skip" the batch.
        overlap: Whether to pull while computing; gradients are then one version older.
        on_step: Called after each batch; may raise `GenerationChanged` from its calls to the servers.
        member: This trainer's session; the process's session by default.

    Raises:
        RequestRefused: The servers hold a different model, or have too little memory for this one.
        ServersUnavailable: A server was unreachable for longer than `EDL_PATIENCE_S`.
        NonFiniteGradient: A loss or gradient is NaN or infinite, and `on_nan` is "fail".
        DataError: An argument, a name or a shape is invalid.
    """
    if on_nan not in ON_NAN:
        raise DataError(f"on_nan is {on_nan!r}: it must be one of {', '.join(ON_NAN)}")
    rules = Rules(
        max_staleness=max_staleness,
        modulate=modulate,
        checkpoint_steps=checkpoint_steps,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_keep=checkpoint_keep,
    )
    model = ModelSpec(worker, code or {}, check_rules(rules))
    trainer = session() if member is None else member
    schedule = DataSchedule(
        epochs=epochs, shuffle_seed=shuffle_seed, shuffle=shuffle, task_records=task_records
    )
    description = schedule.describe(dataset, batch_size, overlap=False)
    trainer.join()
    data = DataRewinder(trainer, dataset.name, description)
    with contextlib.closing(PserverClient(trainer, model, data)) as servers:
        batches = partial(Batches, dataset, batch_size, description, trainer, trim=servers.trim)
        run = _Run(worker, servers, batches, on_step, trainer, overlap=overlap, on_nan=on_nan)
        return run.execute(saves=rules.saves)


class _Run:
    """One run of the training loop in one trainer."""

    def __init__(
        self,
        worker: Worker,
        servers: PserverClient,
        batches: Callable[[], Batches],
        on_step: OnStep,
        member: Session,
        *,
        overlap: bool,
        on_nan: str,
    ) -> None:
        self.result = TrainingResult()
        self._worker, self._servers, self._batches = worker, servers, batches
        self._loop = batches()
        self._on_step, self._member = on_step, member
        self._overlap, self._on_nan = overlap, on_nan
        self._means = EpochMeans()
        self._exchange_s = 0.0

    def execute(self, *, saves: bool) -> TrainingResult:
        """Trains all batches, then writes a final checkpoint.

        If the servers roll back at the end, the data is rewound with them and training continues.
        """
        while True:
            with self._loop:
                self._train()
            if not self.result.whole:
                self._member.check()
                return self.result
            generation = self._servers.generation
            self._finish(saves=saves)
            if self._servers.generation == generation:
                return self.result
            self._loop = self._batches()

    def _train(self) -> None:
        """Trains all batches; returns early if this trainer is stopping."""
        try:
            self._servers.refresh()
            for records in self._loop:
                self._train_batch(records)
        except ServersUnavailable:
            if not self._member.stopping:
                raise
        self.result.whole = not self._member.stopping
        self.result.metrics = self._means.means()
        self._copy_counts()

    def _finish(self, *, saves: bool) -> None:
        """Writes a final checkpoint, and counts batches that were lost in rollbacks since the last push."""
        try:
            while not self._save_final(saves=saves):
                log.info("servers rolled back at the end of training")
        except ServersError as error:
            log.warning("could not save the parameters at the end of training: %s", error)
        self._servers.report_rollbacks()
        self._copy_counts()

    def _save_final(self, *, saves: bool) -> bool:
        try:
            self._servers.refresh()
            if saves:
                self._servers.save()
        except GenerationChanged:
            return False
        return True

    def _copy_counts(self) -> None:
        self.result.version = max(0, self._servers.version)
        self.result.refused_rows = self._servers.refused_rows
        self.result.lost_steps = self._servers.lost_steps
        self.result.lost_records = self._servers.lost_records

    def _train_batch(self, records: Any) -> None:
        started_s, self._exchange_s = clock.monotonic_s(), 0.0
        number = self._servers.next_number()
        try:
            pushed = self._compute_and_push(records, number)
        except NonFiniteGradient as error:
            self._handle_non_finite(error)
            return
        if pushed is None:
            return
        gradients, outcome = pushed
        loop, size = self._loop, self._loop.records
        loop.report(**gradients.metrics)
        self._means.add(loop.epoch, gradients.metrics, size)
        self.result.steps += 1
        self.result.records += size
        if self._on_step is not None:
            self._call_on_step(
                self._on_step,
                Step(
                    number=number,
                    version=self._servers.version,
                    epoch=loop.epoch,
                    records=size,
                    metrics=gradients.metrics,
                    staleness=outcome.staleness,
                    seconds=clock.monotonic_s() - started_s,
                    exchange_s=self._exchange_s,
                    servers=self._servers,
                ),
            )

    def _call_on_step(self, on_step: Callable[[Step], None], step: Step) -> None:
        try:
            on_step(step)
        except GenerationChanged as error:
            log.info("%s: on_step was interrupted", error)
            self._servers.refresh()

    def _compute_and_push(self, records: Any, number: int) -> tuple[Gradients, PushOutcome] | None:
        """Computes and pushes one batch, and repeats this until the servers have applied it.

        Returns:
            The gradients and the outcome; None if a rollback ended the batch's leases, so that other
            trainers train it again.
        """
        tries = 0
        while tries < MAX_TRIES:
            try:
                gradients, outcome = self._try_push(records, number)
            except GenerationChanged as error:
                log.info("%s: recomputing this batch", error)
                self._servers.refresh()
                is_active = self._member.lease_table.is_active
                if not any(is_active(portion.lease) for portion in self._loop.portions):
                    return None
                continue
            if outcome.applied:
                return gradients, outcome
            tries += 1
            self.result.stale += 1
        raise ServersError(
            f"a batch was too stale {MAX_TRIES} times in a row: this trainer is too slow for "
            "max_staleness; raise it, or use modulate instead"
        )

    def _try_push(self, records: Any, number: int) -> tuple[Gradients, PushOutcome]:
        servers = self._servers
        self._worker.load(servers.dense)
        pending_pull = servers.pull_ahead() if self._overlap else None
        try:
            gradients = self._worker.gradients(records, self._lookup)
            self._check_loss(gradients, number)
            started_s = clock.monotonic_s()
            size = self._loop.records
            remaining = self._member.lease_table.remaining_after(self._loop.portions)
            outcome = servers.push(
                gradients, number, size, want=pending_pull is None, remaining=remaining
            )
        except BaseException:
            if pending_pull is not None:
                pending_pull.cancel()
            raise
        if pending_pull is not None:
            self._apply_pull(pending_pull)
        self._exchange_s += clock.monotonic_s() - started_s
        return gradients, outcome

    def _check_loss(self, gradients: Gradients, number: int) -> None:
        if not math.isfinite(gradients.metrics.get("loss", 0.0)):
            raise self._servers.report_non_finite(number, "the loss")

    def _apply_pull(self, pending_pull: Future[Any]) -> None:
        """Applies the concurrent pull, except for parameters that the push's answer has updated since."""
        try:
            self._servers.apply_pull(pending_pull)
        except GenerationChanged:
            self._servers.refresh()

    def _lookup(self, table: str, ids: Ids) -> Any:
        started_s = clock.monotonic_s()
        rows = self._servers.lookup(table, ids)
        self._exchange_s += clock.monotonic_s() - started_s
        return rows

    def _handle_non_finite(self, error: NonFiniteGradient) -> None:
        self.result.skipped += 1
        if self._on_nan == "fail":
            try:
                self._member.control().fail(str(error))
            except MasterError as report_error:
                log.warning("could not report the job's failure to the master: %s", report_error)
            raise error
        log.warning(
            "%s is NaN or infinite at step %d: skipping the batch", error.quantity, error.step
        )
        try:
            self._servers.pull()
        except GenerationChanged:
            self._servers.refresh()
