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
from edl.data.batches import Batches
from edl.data.schedule import DataSchedule
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
"""Attempts of one batch that servers reject as too stale."""
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
    """Trains this trainer's share of a data set, with the job's others, which pass the same arguments.

    Args:
        worker: Computes gradients.
        dataset: From `edl.from_arrays` and the like.
        batch_size: Records of one push.
        epochs: How often each record is trained on; by default as the job says (EDL_EPOCHS), or once.
        shuffle_seed: As in `edl.batches`.
        shuffle: As in `edl.batches`.
        task_records: As in `edl.batches`.
        max_staleness: Gradients that are more versions old are computed again; None accepts all.
        modulate: Whether the learning rate of a push is divided by its staleness.
        checkpoint_steps: Versions between two checkpoints of the servers; 0 uses only the time.
        checkpoint_seconds: Seconds between them; 0 uses only versions. Both 0 disables them.
        checkpoint_keep: How many checkpoints to keep.
        code: A fingerprint of the program, text by name; trainers with another one are refused.
        on_nan: On a NaN or infinite loss or gradient, "fail" the job or "skip" the batch.
        overlap: Whether to pull while computing; each gradient is then staler by one version.
        on_step: Called after each batch; it may raise the `GenerationChanged` of its own calls.
        member: This trainer's session; the process's by default.

    Raises:
        RequestRefused: The servers hold another model, or have too little memory for this one.
        ServersUnavailable: A server was unreachable for longer than `EDL_PATIENCE_S`.
        NonFiniteGradient: A loss or gradient is NaN or infinite, and `on_nan` is "fail".
        DataError: An argument, a name or a shape is invalid.
    """
    _check_on_nan(on_nan)
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


def _check_on_nan(on_nan: str) -> None:
    if on_nan not in ON_NAN:
        raise DataError(f"on_nan is {on_nan!r}: write one of {', '.join(ON_NAN)}")


class _Run:
    """One trainer's run of the loop."""

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

        Servers that roll back at the end set the data back with them: there are batches again.
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
        """Writes a final checkpoint.

        Servers may have rolled back since the last push; the loss is counted as usual.
        """
        try:
            while not self._save_final(saves=saves):
                log.info("servers rolled back at the end of training")
        except ServersError as error:
            log.warning("the parameters were not saved at the end: %s", error)
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
        """Computes and pushes one batch until the servers have applied it once.

        Returns:
            None if its leases ended, with a rollback: the batch is trained again by their holders.
        """
        tries = 0
        while tries < MAX_TRIES:
            try:
                gradients, outcome = self._try_push(records, number)
            except GenerationChanged as error:
                log.info("%s: this batch is computed again", error)
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
            "max_staleness; raise that, or use modulate instead"
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
        """Applies the concurrent pull, except where the answer of the push was newer."""
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
            except MasterError as unheard:
                log.warning("could not report to the master that the job failed: %s", unheard)
            raise error
        log.warning("%s at step %d: this batch is left out", error.quantity, error.step)
        try:
            self._servers.pull()
        except GenerationChanged:
            self._servers.refresh()
