"""The loop of asynchronous training: pull, compute, push; acknowledged once the servers have it."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from edl import clock
from edl.batches import Batches, batches
from edl.errors import DataError, MasterError
from edl.process import session
from edl.servers.errors import Away, BadGradient, Moved, ServersError
from edl.servers.fleet import Pushed, Servers
from edl.servers.model import Model
from edl.servers.options import ON_NAN, Means, OnStep, Result, Rules, Step
from edl.servers.worker import Gradients, Ids, Worker
from edl.session import Session
from edl.sources.base import Dataset

log = logging.getLogger("edl")

MOST_TRIES = 64
"""Of one batch that is found too stale again and again."""
SAVE_EVERY_S = 30.0


def train(
    worker: Worker,
    dataset: Dataset,
    batch_size: int,
    *,
    epochs: int = 1,
    shuffle_seed: int | None = None,
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
) -> Result:
    """Trains this trainer's share of a data set together with whoever else is there.

    Trainers come and go as they please; what is trained lives at the servers. All trainers of a job
    must ask for the same.

    Args:
        worker: Makes gradients.
        dataset: From `edl.from_arrays` and the like.
        batch_size: Records of one push.
        epochs: How often each record is trained on.
        shuffle_seed: Orders tasks differently in each epoch; None keeps their order.
        task_records: As in `edl.batches`.
        max_staleness: A push is computed again where its parameters are older by more versions;
            None lets all in.
        modulate: Whether a push counts for less the staler it is.
        checkpoint_steps: Versions between two checkpoints of the servers; 0 looks at the time.
        checkpoint_seconds: Seconds between them; 0 looks at versions. Both 0 makes none.
        checkpoint_keep: How many to keep.
        code: A fingerprint of the program, text by name: trainers that differ are refused.
        on_nan: "fail" the job where a loss or gradient is no number, or "skip" the batch.
        overlap: Whether to pull while computing: saves the time of pulls, and makes each gradient
            staler by one version, its own.
        on_step: Hears of each batch; where it asks servers for something and they have gone back
            meanwhile, it may let `Moved` through.
        member: This trainer's session; the process's by default.

    Raises:
        Declined: The servers hold another model, or have no room for this one.
        Away: They, or one of them, were away for longer than `EDL_PATIENCE_S`.
        BadGradient: A number is none, and `on_nan` is "fail".
        DataError: An argument, a name or a shape cannot be.
    """
    if on_nan not in ON_NAN:
        raise DataError(f"on_nan is {on_nan!r}: write one of {', '.join(ON_NAN)}")
    rules = Rules(max_staleness, modulate, checkpoint_steps, checkpoint_seconds, checkpoint_keep)
    model = Model(worker, code or {}, rules.check()._asdict())
    found = session() if member is None else member
    loop = batches(
        dataset,
        batch_size,
        epochs=epochs,
        shuffle_seed=shuffle_seed,
        task_records=task_records,
        member=found,
    )
    found.join()
    with contextlib.closing(Servers(found, model)) as servers:
        run = _Run(worker, servers, loop, on_step, found, overlap=overlap, on_nan=on_nan)
        with loop:
            run.all()
        if run.result.whole:
            run.end(saves=rules.saves)
    if not run.result.whole:
        found.check()
    return run.result


class _Run:
    """One trainer's."""

    def __init__(
        self,
        worker: Worker,
        servers: Servers,
        loop: Batches,
        on_step: OnStep,
        member: Session,
        *,
        overlap: bool,
        on_nan: str,
    ) -> None:
        self.result = Result()
        self._worker, self._servers, self._loop = worker, servers, loop
        self._on_step, self._member = on_step, member
        self._overlap, self._on_nan = overlap, on_nan
        self._means = Means()
        self._exchange_s = 0.0

    def all(self) -> None:
        """All batches; ends early where this trainer is to end."""
        try:
            self._servers.refresh()
            for records in self._loop:
                self._batch(records)
        except Away:
            if not self._member.stopping:
                raise
        self.result.whole = not self._member.stopping
        self.result.metrics = self._means.told()
        self._count()

    def end(self, *, saves: bool) -> None:
        """The end of training is worth a checkpoint of its own.

        Servers may have gone back since the last push: what that cost is counted like any other.
        """
        try:
            while not self._ended(saves=saves):
                log.info("servers went back at the end of training")
        except ServersError as error:
            log.warning("the parameters were not saved at the end: %s", error)
        self._servers.tell()
        self._count()

    def _ended(self, *, saves: bool) -> bool:
        try:
            self._servers.refresh()
            if saves:
                self._servers.save()
        except Moved:
            return False
        return True

    def _count(self) -> None:
        self.result.version = max(0, self._servers.version)
        self.result.lost_steps = self._servers.lost_steps
        self.result.lost_records = self._servers.lost_records

    def _batch(self, records: Any) -> None:
        begun_s, self._exchange_s = clock.monotonic_s(), 0.0
        number = self._servers.next_number()
        try:
            gradients, pushed = self._pushed(records, number)
        except BadGradient as error:
            self._bad(error)
            return
        loop, size = self._loop, self._loop.records
        loop.report(**gradients.metrics)
        self._means.add(loop.epoch, gradients.metrics, size)
        self.result.steps += 1
        self.result.records += size
        if self._on_step is not None:
            self._tell(
                self._on_step,
                Step(
                    number=number,
                    version=self._servers.version,
                    epoch=loop.epoch,
                    records=size,
                    metrics=gradients.metrics,
                    staleness=pushed.staleness,
                    seconds=clock.monotonic_s() - begun_s,
                    exchange_s=self._exchange_s,
                    servers=self._servers,
                ),
            )

    def _tell(self, on_step: Callable[[Step], None], step: Step) -> None:
        try:
            on_step(step)
        except Moved as error:
            log.info("%s: what was asked of the servers after a step is left out", error)
            self._servers.refresh()

    def _pushed(self, records: Any, number: int) -> tuple[Gradients, Pushed]:
        """Computes and pushes one batch until the servers have it, once."""
        tries = 0
        while tries < MOST_TRIES:
            try:
                gradients, pushed = self._try(records, number)
            except Moved as error:
                log.info("%s: this batch is computed again", error)
                self._servers.refresh()
                continue
            if pushed.applied:
                return gradients, pushed
            tries += 1
            self.result.stale += 1
        raise ServersError(
            f"a batch was too stale {MOST_TRIES} times in a row: this trainer is too slow for "
            "max_staleness; raise that, or use modulate instead"
        )

    def _try(self, records: Any, number: int) -> tuple[Gradients, Pushed]:
        servers = self._servers
        self._worker.load(servers.dense)
        coming = servers.ahead() if self._overlap else None
        try:
            gradients = self._worker.gradients(records, self._lookup)
            self._check_loss(gradients, number)
            begun_s = clock.monotonic_s()
            size = self._loop.records
            pushed = servers.push(gradients, number, size, want=coming is None)
        except BaseException:
            if coming is not None:
                coming.cancel()
            raise
        if coming is not None:
            self._take(coming)
        self._exchange_s += clock.monotonic_s() - begun_s
        return gradients, pushed

    def _check_loss(self, gradients: Gradients, number: int) -> None:
        if not math.isfinite(gradients.metrics.get("loss", 0.0)):
            raise self._servers.refuse(number, "the loss")

    def _take(self, coming: Future[Any]) -> None:
        """What was pulled meanwhile; what has come with the push's answer stays if it is newer."""
        try:
            self._servers.take(coming)
        except Moved:
            self._servers.refresh()

    def _lookup(self, table: str, ids: Ids) -> Any:
        begun_s = clock.monotonic_s()
        found = self._servers.lookup(table, ids)
        self._exchange_s += clock.monotonic_s() - begun_s
        return found

    def _bad(self, error: BadGradient) -> None:
        self.result.skipped += 1
        if self._on_nan == "fail":
            try:
                self._member.control().fail(str(error))
            except MasterError as unheard:
                log.warning("the master did not hear that the job failed: %s", unheard)
            raise error
        log.warning("%s at step %d: this batch is left out", error.what, error.step)
        try:
            self._servers.pull()
        except Moved:
            self._servers.refresh()
