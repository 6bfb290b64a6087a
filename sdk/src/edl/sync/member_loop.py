"""One trainer's part in synchronous training, round after round.

The members of a round do not change. A round ends when a member is lost, which ends all collective
calls, or when all members agree after a step to change to a later round. The process continues.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from edl.collective import Interrupt, Listener, Ring
from edl.errors import EdlError, Mismatch, RoundOver, Unavailable
from edl.master.protocol import Round
from edl.master.rendezvous import Rendezvous
from edl.master.session import Loop, Session
from edl.overriding import override
from edl.sync.group_member import GroupMember
from edl.sync.group_round import GroupRound
from edl.sync.growth import Streams
from edl.sync.options import RunSpec, SyncResult
from edl.sync.replica import GroupModel
from edl.sync.saving import StateFiles
from edl.sync.shared_code import shared_code

log = logging.getLogger("edl")

TakePart = Callable[[Round], AbstractContextManager[GroupRound]]
"""Connects the members of a round; returns a context for this member's part in it."""


class MemberLoop(Loop):
    """Takes part in rounds until the data is trained; subclasses define the rounds."""

    def __init__(
        self,
        replica: GroupModel,
        spec: RunSpec,
        session: Session,
        *,
        code: Mapping[str, str] | None = None,
        files: StateFiles | None = None,
    ) -> None:
        """Makes no call yet.

        Args:
            replica: This trainer's copy of the model.
            spec: The run's data set and options, the same in all trainers.
            session: This trainer's session.
            code: Entries that must be the same in all trainers, besides the options' entries.
            files: The format of checkpoints; numpy's by default.
        """
        self._session, self._pid = session, os.getpid()
        self.interrupt, self._stream_interrupt = Interrupt(), Interrupt()
        self._is_training = False
        self._steps: Generator[Any, None, None] | None = None
        self._error: EdlError | None = None
        settings = session.settings
        port = settings.exchange_port
        self._listener = Listener("" if port else settings.address, port)
        address = f"{settings.address}:{self._listener.address[1]}"
        own_code = {**shared_code(replica.size, spec), **(code or {})}
        # a new incarnation, because one that has left a rendezvous cannot join again
        self._incarnation = secrets.token_hex(8)
        self.rendezvous = Rendezvous(settings, self._incarnation, address, own_code)
        self.rendezvous.on_void(self._interrupt_calls)
        self.member = GroupMember(
            replica,
            spec,
            session=session,
            rendezvous=self.rendezvous,
            on_stop=lambda: self.wake(None),
            files=files,
        )

    @property
    def result(self) -> SyncResult:
        """This trainer's view of the run so far."""
        progress, result = self.member.progress, self.member.result
        result.steps, result.records = progress.step, progress.records
        result.skipped, result.metrics = progress.skipped, dict(progress.metrics)
        return result

    @override
    def wake(self, error: EdlError | None) -> None:
        """Makes this trainer leave after the current or next step, after SIGTERM or the end of the job."""
        if error is not None:
            log.warning("%s", error)
            self._error = error
        self.member.leaving.set()
        self.member.leave_rendezvous()
        if not self._is_training:
            self._interrupt_calls()

    def close(self) -> None:
        """Ends this trainer's part, and reports its remaining results to the master.

        Does nothing in a forked child of the program.
        """
        if self._is_forked:
            return
        if self._steps is not None:
            self._steps.close()  # after an error in the program, the others wait for this member
        self._end_connections()
        self._session.release(self)
        self.member.leave_rendezvous()
        self.member.close()
        self.rendezvous.close()
        self._listener.close()
        self.interrupt.close()
        self._stream_interrupt.close()

    def _train(self, take_part: TakePart) -> Generator[Any, None, None]:
        """Yields from the steps of all rounds, until all data is trained or this trainer leaves."""
        if self._begin():
            self._steps = self._rounds(take_part)
            yield from self._steps
        self._end()

    def _begin(self) -> bool:
        """Joins the job; returns whether anything is left to train."""
        member = self.member
        self._session.join()
        status = member.status()
        if status.get("state") == "done" and member.dataset.name in status["datasets"]:
            member.mark_late()
            return False
        self._session.register(self)
        self.rendezvous.start()
        return True

    def _end(self) -> None:
        """Raises an error if an error has ended the run."""
        if self._error is not None:
            raise self._error

    def _rounds(self, take_part: TakePart) -> Generator[Any, None, None]:
        member, number, broken = self.member, 0, False
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
                yield from self._run_round(round_, take_part)
            except Mismatch:
                raise
            except RoundOver as error:
                broken = True
                self._end_connections()
                log.info("round %d is over: %s", number, error)

    def _next_round(self, after: int, *, broken: bool) -> Round | None:
        """Waits for the next round with this trainer; returns None if the trainer has to leave."""
        try:
            return self.rendezvous.next(after, broken=broken)
        except Unavailable:
            if self.member.leaving.is_set():
                return None
            raise

    def _run_round(self, round_: Round, take_part: TakePart) -> Iterator[Any]:
        """Runs one round, from the first connection to its end."""
        member = self.member
        member.round_number = round_.number
        with take_part(round_) as part:
            try:
                part.begin()
                member.result.rounds += 1
                member.result.last_round = round_
                member.is_last = round_.world_size == 1
                self.rendezvous.ready(round_.number)
                self._is_training = True
                yield from part.steps()
            except RoundOver:
                self.rendezvous.broken(round_.number)  # lets the next round form meanwhile
                part.drop_gradient()
                member.result.redone += member.progress.flight is not None
                raise
            finally:
                self._is_training = False
                if not self._is_forked:
                    part.close()

    @property
    def _is_forked(self) -> bool:
        """Whether this process is a forked child, whose threads and connections belong to its parent."""
        return os.getpid() != self._pid

    def _end_connections(self) -> None:
        """Ends connections that outlast rounds, because members of a broken round may wait for this one."""

    def _interrupt_calls(self) -> None:
        """Ends all calls that wait for other members; called on any thread."""
        self.interrupt.set()
        self._stream_interrupt.set()

    def _streams(self, round_: Round) -> Streams:
        """Returns the connections over which newcomers get a large state while the others train."""
        connect = partial(self._connect_ring, round_, self._stream_interrupt)
        return Streams(self._stream_interrupt, connect)

    def _connect_ring(
        self, round_: Round, interrupt: Interrupt, ranks: Sequence[int], channel: int
    ) -> Ring:
        """Connects a ring of members of a round."""
        return Ring.connect(
            self._listener,
            [round_.members[rank].address for rank in ranks],
            ranks.index(round_.rank),
            number=round_.number,
            key=self._session.settings.token.encode(),
            interrupt=interrupt,
            on_wait=self.rendezvous.waiting,
            channel=channel,
        )
