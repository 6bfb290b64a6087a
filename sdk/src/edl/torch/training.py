"""`edl.torch.Training`: a loop of torch in which trainers come and go, without a restart."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from edl.collective import Interrupt
from edl.data.batches import describe
from edl.errors import DataError, EdlError, Mismatch, RoundOver, Unavailable
from edl.master.client import Client
from edl.master.connection import Connection
from edl.master.protocol import Round
from edl.master.rendezvous import Rendezvous
from edl.master.round_store import RoundStore
from edl.master.session import Loop, Session, session
from edl.sources.base import Dataset
from edl.sync import step_flags
from edl.sync.group_member import GroupMember
from edl.sync.options import OnStep, SyncOptions, SyncResult
from edl.sync.shared_code import shared_code
from edl.torch.groups import gloo_groups
from edl.torch.link import GroupLink
from edl.torch.replica import TorchFiles, TorchReplica
from edl.torch.sampler import Indices, LeasedSampler
from edl.torch.step import MemberStep
from edl.torch.store import MasterStore
from edl.torch.torch_round import LoaderBatches, TorchRound
from edl.torch.waiting import Waiting
from edl.torch.workers import end_with_parent

log = logging.getLogger("edl")


class Training(Loop):
    """Synchronous training of a torch module together with all other trainers of the job.

    ```python
    with edl.torch.Training(model, optimizer, records=len(data), batch_size=64) as training:
        loader = DataLoader(data, batch_sampler=training.sampler, num_workers=2)
        for step in training.steps(loader):
            for images, labels in step:
                step.backward(cross_entropy(model(images), labels))
    ```

    The model is not wrapped. When `steps` asks for the next step, gradients are summed, and the
    optimizer has made its step. All members hold the same model after each step.

    Args:
        model: A `torch.nn.Module`, on the device on which it is trained.
        optimizer: Of its parameters; `steps` calls it.
        records: Number of records of the data set, such as `len(train_set)`.
        batch_size: Records of a step, of all members together.
        name: Of the data set, at the master.
        micro_batches: Parts of a step; the most trainers that can share it. A `DataLoader` makes
            batches of batch_size / micro_batches records.
        epochs: How often each record is trained on.
        shuffle_seed: Orders records differently in each epoch; None keeps their order.
        task_records: Records that are leased and acknowledged together.
        constant_batch: If False, each member computes one micro-batch per step, and the learning
            rate is multiplied by members / micro_batches.
        scheduler: A `torch.optim.lr_scheduler`; `steps` calls it after each step.
        before_step: Called before the optimizer, for example to clip the gradient.
        code: Entries that must be the same in all trainers, by name.
        checkpoints: Folder for checkpoints, the same for all trainers.
        checkpoint_steps: Number of steps between two checkpoints; one is written at the end, too.
        on_nan: What to do if a loss or gradient is not finite: "fail" the job, or "skip" the step.
        seed: Seed of everything random in a step, such as dropout.
        on_step: Called after each step with its metrics.
        member: This trainer's session; the process's by default.

    Raises:
        DataError: An argument is out of its range.
        TrainingError: The model has nothing to train.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        records: int,
        batch_size: int,
        name: str = "train",
        micro_batches: int = 8,
        epochs: int = 1,
        shuffle_seed: int | None = None,
        task_records: int | None = None,
        constant_batch: bool = True,
        scheduler: Any | None = None,
        before_step: Callable[[], object] | None = None,
        code: Mapping[str, str] | None = None,
        checkpoints: Path | str | None = None,
        checkpoint_steps: int = 0,
        on_nan: str = "fail",
        seed: int = 0,
        on_step: OnStep = None,
        member: Session | None = None,
    ) -> None:
        """Makes no call yet."""
        folder = None if checkpoints is None else Path(checkpoints)
        batches = (batch_size, micro_batches, constant_batch)
        options = SyncOptions(
            *batches, dict(code or {}), folder, checkpoint_steps, on_nan, seed, on_step, None
        )
        dataset = Dataset(name, Indices(records))
        schedule = {"epochs": epochs, "shuffle_seed": shuffle_seed, "task_records": task_records}
        description = describe(dataset, batch_size, overlap=True, **schedule)  # type: ignore[arg-type]
        self.sampler = LeasedSampler()
        """The `batch_sampler` of the `DataLoader`."""
        self._replica = TorchReplica(model, optimizer, scheduler, before_step, step_flags.SIZE)
        self._session = session() if member is None else member
        settings = self._session.settings
        self._groups = gloo_groups(settings.address)
        self._interrupt = Interrupt()
        self._incarnation = secrets.token_hex(8)
        self._is_training = False
        self._current: Generator[MemberStep, None, None] | None = None
        self._error: EdlError | None = None
        own_code = shared_code(self._replica.size, name, description, options)
        own_code |= {"torch": _version(), "model": self._replica.signature()}
        self._rendezvous = Rendezvous(
            settings, self._incarnation, f"{settings.address}:0", own_code
        )
        self._rendezvous.on_void(self._interrupt.set)
        self._member = GroupMember(
            self._replica,
            dataset,
            description,
            options,
            session=self._session,
            rendezvous=self._rendezvous,
            on_stop=lambda: self.wake(None),
            files=TorchFiles(),
        )

    @property
    def result(self) -> SyncResult:
        """This trainer's view of the run so far."""
        progress, result = self._member.progress, self._member.result
        result.steps, result.records = progress.step, progress.records
        result.skipped, result.metrics = progress.skipped, dict(progress.metrics)
        return result

    def steps(self, loader: Any) -> Iterator[MemberStep]:
        """Yields one step after the other, until all data is trained.

        Args:
            loader: A `DataLoader` with `batch_sampler=training.sampler`. With workers,
                `persistent_workers=True` spares their restart when members change.

        Raises:
            DataError: The loader has another sampler, or the program left out a micro-batch.
            TrainingError: A loss was not finite, and `on_nan` is "fail".
            Refused: This trainer's program or model differs from that of the others.
            Unavailable: The master was away for too long.
            SystemExit: SIGTERM came, and this trainer has left; the exit code is 143.
        """
        if getattr(loader, "batch_sampler", None) is not self.sampler:
            raise DataError(
                "the DataLoader has another sampler: make it with batch_sampler=training.sampler, and "
                "without batch_size, shuffle, sampler and drop_last"
            )
        end_with_parent(loader)
        member = self._member
        if self._begin():
            self._current = self._rounds(LoaderBatches(loader, self.sampler))
            yield from self._current
        if self._error is not None:
            raise self._error
        if not member.result.whole:
            self._session.check()

    def wake(self, error: EdlError | None) -> None:
        """Makes this trainer leave after the current or next step: SIGTERM, or the job stops."""
        if error is not None:
            log.warning("%s", error)
            self._error = error
        self._member.leaving.set()
        self._member.leave_rendezvous()
        if not self._is_training:
            self._interrupt.set()

    def close(self) -> None:
        """Ends this trainer's part; reports to the master what only this trainer can report."""
        if self._current is not None:
            self._current.close()  # after an error in the program: the others wait for this member
        self._groups.close()
        self._session.release(self)
        self._member.leave_rendezvous()
        self._member.close()
        self._rendezvous.close()
        self._replica.buckets.close()
        self._interrupt.close()

    def __enter__(self) -> Training:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> bool:
        """Joins the job; returns whether anything is left to train."""
        member = self._member
        self._session.join()
        status = member.status()
        if status.get("state") == "done" and member.dataset.name in status["datasets"]:
            member.mark_late()
            return False
        self._session.register(self)
        self._rendezvous.start()
        return True

    def _rounds(self, batches: LoaderBatches) -> Generator[MemberStep, None, None]:
        """Takes part in rounds until all data is trained, or until this trainer leaves."""
        member, number, broken = self._member, 0, False
        while not (member.leaving.is_set() or member.result.whole):
            round_ = self._next_round(number, broken=broken)
            if round_ is None:
                break
            number, broken = round_.number, False
            self._interrupt.clear()
            if self._rendezvous.newer(number) and member.leaving.is_set():
                break
            try:
                yield from self._run_round(round_, batches)
            except Mismatch:
                raise
            except RoundOver as error:
                broken = True
                log.info("round %d is over: %s", number, error)

    def _next_round(self, after: int, *, broken: bool) -> Round | None:
        try:
            return self._rendezvous.next(after, broken=broken)
        except Unavailable:
            if self._member.leaving.is_set():
                return None
            raise

    def _run_round(self, round_: Round, batches: LoaderBatches) -> Iterator[MemberStep]:
        """Runs one round, from the first connection to its end."""
        member, settings = self._member, self._session.settings
        member.round_number = round_.number
        connection = Connection(settings.master, settings.token)
        client = Client(connection, settings.trainer, self._incarnation)
        waiting = Waiting(self._interrupt, self._rendezvous.waiting)
        link: GroupLink | None = None
        runner: TorchRound | None = None
        try:
            group = None
            if round_.world_size > 1:
                store = MasterStore(RoundStore(client, round_.number))
                group = self._groups.form(round_, store, waiting)
            link = GroupLink(group, round_.rank, round_.world_size, waiting)
            runner = TorchRound(member, link, round_, self._replica, batches)
            runner.begin()
            member.result.rounds += 1
            member.result.last_round = round_
            member.is_last = round_.world_size == 1
            self._rendezvous.ready(round_.number)
            self._is_training = True
            yield from runner.steps()
        except RoundOver:
            is_pending = link is not None and link.has_pending
            (self._replica.move if is_pending else self._replica.clear)()
            member.result.redone += member.progress.flight is not None
            raise
        finally:
            self._is_training = False
            if runner is not None:
                runner.close()
            works = [] if link is None else link.works
            if link is not None:
                link.close()
            self._groups.abandon(works)
            client.close()


def _version() -> str:
    """The version of torch, without its build: members with another one are refused."""
    return str(torch.__version__).split("+", maxsplit=1)[0]
