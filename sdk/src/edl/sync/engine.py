"""`edl.sync.train`: one trainer's part in synchronous training, round after round.

A round has fixed members. It ends when a member is lost, which ends all collective calls, or when
all members agree after a step to change to a later round; the process continues in either case.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from edl.collective import Interrupt, Listener, Ring
from edl.data.batches import describe
from edl.errors import EdlError, Mismatch, RoundOver, Unavailable
from edl.master import protocol
from edl.master.protocol import Round
from edl.master.rendezvous import Rendezvous
from edl.master.session import Loop, Session, session
from edl.sources.base import Dataset
from edl.sync import step_flags
from edl.sync.group_member import GroupMember
from edl.sync.growth import Streams
from edl.sync.options import OnStep, SyncOptions, SyncResult
from edl.sync.replica import Replica
from edl.sync.round_runner import RoundRunner
from edl.sync.shared_code import shared_code

log = logging.getLogger("edl")


def train(
    replica: Replica,
    dataset: Dataset,
    batch_size: int,
    *,
    micro_batches: int = 8,
    epochs: int | None = None,
    shuffle_seed: int | None = None,
    shuffle: str = "records",
    task_records: int | None = None,
    constant_batch: bool = True,
    code: Mapping[str, str] | None = None,
    checkpoints: Path | str | None = None,
    checkpoint_steps: int = 0,
    on_nan: str = "fail",
    seed: int = 0,
    on_step: OnStep = None,
    between: OnStep = None,
    member: Session | None = None,
) -> SyncResult:
    """Trains together with all other trainers of the job, while trainers come and go.

    Every member holds the same parameters after every step. The records of a step depend only on
    the seed: the loss curve is that of a run whose members never change, except for rounding.

    Args:
        replica: This trainer's copy of the model.
        dataset: From `edl.from_arrays` or a similar function; the same in all trainers.
        batch_size: Records of a step, of all members together.
        micro_batches: Parts of a step, computed one by one; the most trainers that can share it.
        epochs: How often each record is trained on; by default as the job says (EDL_EPOCHS), or once.
        shuffle_seed: Orders records differently in each epoch; None keeps their order.
        shuffle: As in `edl.batches`.
        task_records: Records that are leased and acknowledged together.
        constant_batch: If False, each member computes one micro-batch per step, and the learning
            rate is multiplied by members / micro_batches.
        code: Entries that must be the same in all trainers, by name, such as a program version.
        checkpoints: Folder for checkpoints, the same for all trainers; training continues from the
            newest complete one after all members were lost.
        checkpoint_steps: Number of steps between two checkpoints; one is written at the end, too.
        on_nan: What to do if a loss is not finite: "fail" the job, or "skip" the step.
        seed: Seed of everything random in a step, such as dropout.
        on_step: Called after each step.
        between: For evaluations: called after each step, with the same state in all members.
        member: This trainer's session; the process's by default.

    Returns:
        This trainer's view of the run. After SIGTERM the call does not return: the process exits
        with code 143 once the current step is done, or when its grace period is over.

    Raises:
        DataError: An argument is out of its range.
        TrainingError: A loss was not finite, and `on_nan` is "fail".
        Refused: This trainer's program differs from that of the others.
        Unavailable: The master was away for too long.
    """
    batches = (batch_size, micro_batches, constant_batch)
    saving = (None if checkpoints is None else Path(checkpoints), checkpoint_steps)
    options = SyncOptions(*batches, dict(code or {}), *saving, on_nan, seed, on_step, between)
    return _run(replica, dataset, options, (epochs, shuffle_seed, shuffle, task_records), member)


def _run(
    replica: Replica,
    dataset: Dataset,
    options: SyncOptions,
    schedule: tuple[int | None, int | None, str, int | None],
    member: Session | None,
) -> SyncResult:
    """Trains as `train` does; `schedule` holds its epochs, seed, shuffle and a task's records."""
    epochs, shuffle_seed, shuffle, task_records = schedule
    description = describe(
        dataset,
        options.batch_size,
        epochs=epochs,
        shuffle_seed=shuffle_seed,
        shuffle=shuffle,
        task_records=task_records,
        overlap=True,  # there is one consumer: order is kept, and no epoch's end is waited for
    )
    own_session = session() if member is None else member
    engine = Engine(replica, dataset, description, options, own_session)
    try:
        result = engine.run()
    finally:
        engine.close()
    if not result.whole:
        own_session.check()
    return result


class Engine(Loop):
    """One trainer's synchronous training: takes part in rounds until the data is trained."""

    def __init__(
        self,
        replica: Replica,
        dataset: Dataset,
        description: protocol.Json,
        options: SyncOptions,
        session: Session,
    ) -> None:
        self.interrupt = Interrupt()
        self._stream_interrupt = Interrupt()
        self._training = False
        self._error: EdlError | None = None
        settings = session.settings
        port = settings.exchange_port
        self._listener = Listener("" if port else settings.address, port)
        address = f"{settings.address}:{self._listener.address[1]}"
        code = shared_code(replica.size, dataset.name, description, options)
        # its own incarnation, not the session's: one that has left a rendezvous cannot join again
        self.rendezvous = Rendezvous(settings, secrets.token_hex(8), address, code)
        self.rendezvous.on_void(self._interrupt_calls)
        self.member = GroupMember(
            replica,
            dataset,
            description,
            options,
            session=session,
            rendezvous=self.rendezvous,
            on_stop=lambda: self.wake(None),
        )
        # its pages are in memory before others wait for the first sum of this member
        self.member.buffer = np.full(replica.size + step_flags.SIZE, 0, np.float32)

    # -- for the session ---------------------------------------------------------------------

    def wake(self, error: EdlError | None) -> None:
        """Makes this trainer leave after the current or next step: SIGTERM, or the job stops."""
        if error is not None:
            log.warning("%s", error)
            self._error = error
        self.member.leaving.set()
        self.member.leave_rendezvous()
        if not self._training:
            self._interrupt_calls()

    def _interrupt_calls(self) -> None:
        """Ends all collective calls; on any thread."""
        self.interrupt.set()
        self._stream_interrupt.set()

    # -- for the program ---------------------------------------------------------------------

    def run(self) -> SyncResult:
        """Takes part in rounds until all data is trained, or until this trainer leaves."""
        member = self.member
        member.session.join()
        status = member.status()
        if status.get("state") == "done" and member.dataset.name in status["datasets"]:
            member.mark_late()
            return member.result
        member.session.register(self)
        self.rendezvous.start()
        number, broken = 0, False
        while not (member.leaving.is_set() or member.result.whole):
            round_ = self._next_round(number, broken=broken)
            if round_ is None:
                break
            number, broken = round_.number, False
            self.interrupt.clear()
            self._stream_interrupt.clear()
            if self.rendezvous.newer(number) and member.leaving.is_set():
                break
            try:
                self._run_round(round_)
            except Mismatch:
                raise
            except RoundOver as error:
                broken = True
                log.info("round %d is over: %s", number, error)
        self._fill_result()
        if self._error is not None:
            raise self._error
        return member.result

    def close(self) -> None:
        """Closes everything; reports to the master what only this trainer can report."""
        self.member.session.release(self)
        self.member.leave_rendezvous()
        self.member.close()
        self.rendezvous.close()
        self._listener.close()
        self.interrupt.close()
        self._stream_interrupt.close()

    def _next_round(self, after: int, *, broken: bool) -> Round | None:
        """Waits for the next round with this trainer; None if it is to leave meanwhile."""
        try:
            return self.rendezvous.next(after, broken=broken)
        except Unavailable:
            if self.member.leaving.is_set():
                return None
            raise

    def _run_round(self, round_: Round) -> None:
        """Runs one round, from the first connection to its end."""
        member = self.member
        member.round_number = round_.number
        ring = self._connect(round_, self.interrupt, range(round_.world_size), 0)
        connect = partial(self._connect, round_, self._stream_interrupt)
        streams = Streams(self._stream_interrupt, connect)
        runner = RoundRunner(member, ring, round_, streams)
        try:
            runner.begin()
            member.result.rounds += 1
            member.result.last_round = round_
            member.is_last = round_.world_size == 1
            self.rendezvous.ready(round_.number)
            self._training = True
            runner.run()
        except RoundOver:
            member.replica.clear()
            member.result.redone += member.progress.flight is not None
            raise
        finally:
            self._training = False
            runner.close()
            ring.close()

    def _connect(
        self, round_: Round, interrupt: Interrupt, ranks: Sequence[int], channel: int
    ) -> Ring:
        """Connects a ring of members of a round."""
        return Ring.connect(
            self._listener,
            [round_.members[rank].address for rank in ranks],
            ranks.index(round_.rank),
            number=round_.number,
            key=self.member.session.settings.token.encode(),
            interrupt=interrupt,
            on_wait=self.rendezvous.waiting,
            channel=channel,
        )

    def _fill_result(self) -> None:
        progress, result = self.member.progress, self.member.result
        result.steps, result.records = progress.step, progress.records
        result.skipped, result.metrics = progress.skipped, dict(progress.metrics)
