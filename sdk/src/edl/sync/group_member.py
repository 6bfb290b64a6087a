"""One trainer as a member of the group: its model, its copy of the progress, and its leadership."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from edl.errors import MasterError, Refused, RoundOver, Unavailable
from edl.master import protocol
from edl.master.heartbeat import is_replaced
from edl.master.rendezvous import Rendezvous
from edl.master.session import Session
from edl.sources.leased_records import LeasedRecords
from edl.sync.group_progress import GroupProgress
from edl.sync.group_session import CheckpointPermit
from edl.sync.leader import Leader, is_behind
from edl.sync.options import RunSpec, SyncResult, SyncStep
from edl.sync.replica import GroupModel
from edl.sync.saving import CheckpointWriter, NpzFiles, StateFiles
from edl.sync.shared_write import SharedWrite

log = logging.getLogger("edl")

_LEAVE_S = 0.3
FIRST_STEP_S = 900.0
"""How long the first step of a process may take; a process that takes longer probably hangs."""


@dataclass(frozen=True)
class KeptStep:
    """A completed step whose gradient a member can still send to members that lack the step."""

    lineage: int
    """Lineage of the state after the step."""
    before: int
    """Lineage of the state before the step."""
    scale: float
    """Factor of the learning rate."""


class GroupMember:
    """One trainer as a member of the group, in all rounds; the member of rank 0 is the leader."""

    def __init__(
        self,
        replica: GroupModel,
        spec: RunSpec,
        *,
        session: Session,
        rendezvous: Rendezvous,
        on_stop: Callable[[], None],
        files: StateFiles | None = None,
    ) -> None:
        """Makes no call yet.

        Args:
            replica: This trainer's copy of the model.
            spec: The run's data set and options, the same in all members.
            session: This trainer's session; the leader has a second session in the group's name.
            rendezvous: The source of rounds.
            on_stop: Called on any thread when the master stops the job.
            files: The format of checkpoints; numpy's by default.
        """
        self.files: StateFiles = NpzFiles() if files is None else files
        self.replica, self.dataset, self.options = replica, spec.dataset, spec.options
        self.session, self.rendezvous = session, rendezvous
        self.progress = GroupProgress()
        self.result = SyncResult()
        self.leaving = threading.Event()
        """Set when this trainer has to leave after the current or next step."""
        self.round_number = 0
        """Number of the current round, or of the round that this trainer is joining."""
        self.leader: Leader | None = None
        """Leases records while this trainer leads; None otherwise."""
        self.buffer = np.zeros(0, np.float32)
        """The gradient of a step, followed by the step's flags."""
        self.kept_step: KeptStep | None = None
        """The newest step, while `buffer` holds its gradient."""
        self.is_last = True
        """Whether no other member can lead after this trainer."""
        self._has_computed = False
        self._renewed_at = 0
        """The position is not renewed with fewer listed tasks than this; grows when the master
        cannot renew it."""
        self._description, self._on_stop = spec.description, on_stop
        folder = spec.options.checkpoints
        self._checkpoint_writer = None if folder is None else CheckpointWriter(folder, self.files)

    def leased_records(self) -> LeasedRecords:
        """Returns an object with which one reader reads records of the data set."""
        return LeasedRecords(self.dataset.source, self._description)

    def close(self) -> None:
        """Waits for a checkpoint that is being written, and ends this member's leadership."""
        if self._checkpoint_writer is not None:
            self._checkpoint_writer.close()
        if self.leader is not None:
            if self.result.whole or self.is_last:
                self.leader.finish()
            else:
                self.leader.abandon()
            self.leader = None

    # -- leadership --------------------------------------------------------------------------

    def start_term(self, after: int, event: str = "", reason: str = "") -> bool:
        """Makes this member the leader and begins the next term.

        Args:
            after: The newest term that the members' state contains.
            event: Name of the event after which the data is set back to the records that the state
                contains: a newer state was lost, or a checkpoint was restored. "" keeps the
                data's position.
            reason: Reason for the event, in one line.

        Returns:
            False if the master knows a newer state. This member may then have lost leases, but only
            leases whose records it has not trained.

        Raises:
            RoundOver: The round is over: this member was frozen, or the master does not answer.
        """
        try:
            leader = self._start_term(after, self._target(event, reason))
        except Refused as error:
            if is_behind(error):
                return False
            raise
        except Unavailable as error:
            if self._is_round_over():
                raise RoundOver(str(error)) from error
            raise
        self.progress.term = leader.session.term
        return True

    def _target(self, event: str, reason: str) -> protocol.Json | None:
        """Returns the position to which the data is set back, or None if it is unknown or not needed."""
        data = self.progress.data
        if not event or not data.is_known:
            return None
        return {
            "event": event,
            "reason": reason,
            "version": self.progress.step,
            **data.target(),
        }

    def renew_position(self, *, at: int = 0) -> bool:
        """Continues from the ledger's current position, if this member leads.

        Args:
            at: Smallest number of listed tasks with which the position is renewed.

        Returns:
            Whether the position was renewed.
        """
        data = self.progress.data
        if self.leader is None or len(data.tasks) < max(at, self._renewed_at):
            return False
        try:
            data.renew(self.session.control().position(self.dataset.name, data.tasks))
        except (MasterError, LookupError) as error:
            log.info("the position in the data is not renewed: %s", error)
            self._renewed_at = 2 * max(at, len(data.tasks))
            return False
        self._renewed_at = 0
        return True

    def _start_term(self, after: int, target: protocol.Json | None) -> Leader:
        if self.leader is not None and (self.leader.replaced or target is not None):
            self.drop_leadership()
        if self.leader is not None:
            try:
                self.leader.begin_term(after)
            except Refused as error:
                if not is_replaced(error):
                    raise
                self.drop_leadership()
        if self.leader is None:
            if self._is_round_over():
                raise RoundOver("a later round has begun")
            self.progress.start_leading()
            self.leader = Leader(
                self.session.settings,
                self.progress.lease_table,
                self.dataset.name,
                self._description,
                after=after,
                batch_size=self.options.batch_size,
                on_stop=self._on_stop,
                is_round_over=self._is_round_over,
                target=target,
            )
        return self.leader

    def _is_round_over(self) -> bool:
        """Returns whether the round is over, for a member that is not ready in it yet."""
        return self.leaving.is_set() or self.rendezvous.newer(self.round_number)

    def confirm_leadership(self) -> None:
        """Checks that this member still leads, if it was the leader and may have been frozen.

        Raises:
            RoundOver: Other members have continued without it.
        """
        if self.leader is not None and (self.leader.replaced or self.rendezvous.stalled()):
            self.leader.confirm_leadership()

    def drop_leadership(self) -> None:
        """Ends this member's leadership, because another member leads."""
        if self.leader is not None:
            self.leader.abandon()
            self.leader = None

    def leave_rendezvous(self) -> None:
        """Excludes this member from later rounds."""
        self.rendezvous.leave(_LEAVE_S)

    # -- progress ----------------------------------------------------------------------------

    def commit(self) -> None:
        """Records the newest step in the lease table, once all members have made it."""
        if self.progress.commit() and self.leader is not None:
            self.leader.report_ready()

    def save_checkpoint(self, rank: int, writers: int, *, wait: bool = False) -> None:
        """Writes a checkpoint, or this member's part of one.

        Args:
            rank: This member's rank.
            writers: Number of members that have the state; they have the lowest ranks.
            wait: Whether to wait until the checkpoint is complete.
        """
        writer, step = self._checkpoint_writer, self.progress.step
        is_shared = self.files.is_sharded and writers > 1
        if writer is None or (self.leader is None and not (is_shared and rank < writers)):
            return
        client = self.rendezvous.client() if is_shared else None
        count = writers if is_shared else 1
        name = self.session.settings.trainer
        round_number = self.round_number
        shared = SharedWrite(
            name, rank, count, step=step, client=client, round_number=round_number, is_last=wait
        )
        permit = None if self.leader is None else CheckpointPermit(self.leader.session)
        writer.save(self.replica, self.progress.position_json(), shared, permit, wait=wait)

    @contextlib.contextmanager
    def computing(self, *, is_long: bool = False) -> Iterator[None]:
        """A context for the computation of a step.

        The first step may compile for minutes. Within the context, the others do not drop this
        member for `FIRST_STEP_S`.

        Args:
            is_long: Whether later steps take long, too.
        """
        if self._has_computed and not is_long:
            yield
            return
        self.rendezvous.busy(now=True, max_s=FIRST_STEP_S)
        try:
            yield
        finally:
            self.rendezvous.busy(now=False)
        self._has_computed = True

    def report_step(self, step: SyncStep) -> None:
        """Calls the program's callbacks after a step."""
        if self.leader is not None:
            self.leader.session.stepped()
        if self.options.on_step is not None:
            self.options.on_step(step)
        if self.options.between is not None:
            self.confirm_leadership()
            self.rendezvous.busy(now=True)
            try:
                self.options.between(step)
            finally:
                self.rendezvous.busy(now=False)

    def mark_late(self) -> None:
        """Records that others have trained all data, and that this trainer lacks the trained model."""
        when = "while this trainer was away" if self.result.rounds else "before this trainer came"
        log.info("the data was trained %s", when)
        self.result.whole = self.result.late = True

    # -- the master --------------------------------------------------------------------------

    def status(self) -> protocol.Json:
        """Returns the master's status; an empty one if the master does not answer."""
        try:
            return self.session.control().status()
        except Unavailable as error:
            log.info("cannot read the job's status: %s", error)
            return {}

    def fail_job(self, reason: str) -> None:
        """Reports to the master that the job has failed; the master stops all trainers."""
        try:
            self.session.control().fail(reason)
        except MasterError as error:
            log.warning("the job's failure could not be reported to the master: %s", error)
