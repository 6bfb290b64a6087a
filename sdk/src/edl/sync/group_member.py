"""What one trainer is and has in the group: its model, the group's progress, and its leadership."""

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
"""How long the first step of a process may take; a limit, as it might hang instead."""


@dataclass(frozen=True)
class KeptStep:
    """A step that a member has made and whose gradient it can give to one that has not."""

    lineage: int
    """Of the state after it."""
    before: int
    """Of the state before it."""
    scale: float
    """What the learning rate was multiplied by."""


class GroupMember:
    """One trainer as a member of the group, in all rounds; it is the leader where it has rank 0."""

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
            session: This trainer's own; the leader has another one in the group's name.
            rendezvous: The source of rounds.
            on_stop: Called on any thread when the master stops the job.
            files: Of checkpoints; those of numpy by default.
        """
        self.files: StateFiles = NpzFiles() if files is None else files
        self.replica, self.dataset, self.options = replica, spec.dataset, spec.options
        self.session, self.rendezvous = session, rendezvous
        self.progress = GroupProgress()
        self.result = SyncResult()
        self.leaving = threading.Event()
        """Set once this trainer is to leave after the current or next step."""
        self.round_number = 0
        """The round that this trainer takes part in, or is about to."""
        self.leader: Leader | None = None
        """Leases records as long as this trainer leads; None otherwise."""
        self.buffer = np.zeros(0, np.float32)
        """The gradient of a step, and the step's flags behind it."""
        self.kept_step: KeptStep | None = None
        """The newest step, as long as `buffer` has its gradient."""
        self.is_last = True
        """Whether no other member could lead after this trainer."""
        self._has_computed = False
        self._renewed_at = 0
        """Tasks in the position below which it is not renewed: the master could not, last time."""
        self._description, self._on_stop = spec.description, on_stop
        folder = spec.options.checkpoints
        self._checkpoint_writer = None if folder is None else CheckpointWriter(folder, self.files)

    def leased_records(self) -> LeasedRecords:
        """Reads records of the data set, for one reader."""
        return LeasedRecords(self.dataset.source, self._description)

    def close(self) -> None:
        """Waits for a checkpoint under way, and ends this member's leadership."""
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
            after: The newest term in which the members' state was trained.
            event: Names the loss of a newer state, or the restoration of a checkpoint: the data is
                set back to what the state contains; "" leaves the data as it is.
            reason: Of the event, in one line.

        Returns:
            Whether the master accepted: False if there is a newer state. Then at most leases are gone
            of which nothing was trained.

        Raises:
            RoundOver: The round is over: this member stood still, or the master is away.
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
        """Where the data is set back to; None where that is not known, or not needed."""
        data = self.progress.data
        if not event or not data.is_known:
            return None
        about = {"event": event, "reason": reason, "version": self.progress.step}
        return {**about, **data.target()}

    def renew_position(self, *, at: int = 0) -> bool:
        """Continues from the ledger's position of now, if this member leads.

        Args:
            at: Only if more tasks are listed than this.

        Returns:
            Whether the position is another.
        """
        data = self.progress.data
        if self.leader is None or len(data.tasks) < max(at, self._renewed_at):
            return False
        try:
            data.renew(self.session.control().position(self.dataset.name, data.tasks))
        except (MasterError, LookupError) as error:
            log.info("the position in the data stays that of before: %s", error)
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
        """Whether the round is over, for a member that is not ready in it yet."""
        return self.leaving.is_set() or self.rendezvous.newer(self.round_number)

    def confirm_leadership(self) -> None:
        """If this member leads and may have stood still, checks that it still leads.

        Raises:
            RoundOver: It does not: other members have continued without it.
        """
        if self.leader is not None and (self.leader.replaced or self.rendezvous.stalled()):
            self.leader.confirm_leadership()

    def drop_leadership(self) -> None:
        """Ends this member's leadership: another member leads."""
        if self.leader is not None:
            self.leader.abandon()
            self.leader = None

    def leave_rendezvous(self) -> None:
        """Excludes this member from later rounds."""
        self.rendezvous.leave(_LEAVE_S)

    # -- progress ----------------------------------------------------------------------------

    def commit(self) -> None:
        """Enters the newest step, which all members have made, in the lease table."""
        if self.progress.commit() and self.leader is not None:
            self.leader.report_ready()

    def save_checkpoint(self, rank: int, writers: int, *, wait: bool = False) -> None:
        """Writes a checkpoint of the state that all members have, or this member's part of it.

        Args:
            rank: This member's.
            writers: Members that have the state: those of lower ranks.
            wait: Whether to wait until it is complete.
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
        """A context for the computation of a step: the first one may compile for minutes.

        The others wait then, and do not drop this member for as long as `FIRST_STEP_S`.

        Args:
            is_long: Whether later ones take long, too.
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
        """Records that others have trained all data, and this trainer lacks the model."""
        when = "while this trainer was away" if self.result.rounds else "before this trainer came"
        log.info("the data was trained %s", when)
        self.result.whole = self.result.late = True

    # -- the master --------------------------------------------------------------------------

    def status(self) -> protocol.Json:
        """Returns the master's status; an empty one while the master is away."""
        try:
            return self.session.control().status()
        except Unavailable as error:
            log.info("cannot read the job's status: %s", error)
            return {}

    def fail_job(self, reason: str) -> None:
        """Reports to the master that the job fails; the master stops all trainers."""
        try:
            self.session.control().fail(reason)
        except MasterError as error:
            log.warning("the job's failure could not be reported to the master: %s", error)
