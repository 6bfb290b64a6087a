"""Takes part in rounds over process groups of torch, step after step, whatever reads the records."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial

import torch

from edl.collective import Interrupt, Listener, Ring
from edl.errors import EdlError, Mismatch, RoundOver, Unavailable
from edl.master import protocol
from edl.master.client import Client
from edl.master.connection import Connection
from edl.master.protocol import Round
from edl.master.rendezvous import Rendezvous
from edl.master.round_store import RoundStore
from edl.master.session import Loop, Session, session
from edl.sources.base import Dataset
from edl.sync.group_member import GroupMember
from edl.sync.growth import Streams
from edl.sync.options import SyncOptions, SyncResult
from edl.sync.shared_code import shared_code
from edl.torch.dcp_files import DcpFiles
from edl.torch.groups import form_group, gloo_groups
from edl.torch.link import GroupLink
from edl.torch.replica import TorchReplica
from edl.torch.step import MemberStep
from edl.torch.torch_round import MemberBatches, TorchRound
from edl.torch.waiting import Waiting

log = logging.getLogger("edl")


class TorchEngine(Loop):
    """One trainer's part in a job whose members sum gradients over process groups of torch."""

    def __init__(
        self,
        replica: TorchReplica,
        dataset: Dataset,
        description: protocol.Json,
        options: SyncOptions,
        member: Session | None,
        *,
        new_round: Callable[..., TorchRound] = TorchRound,
        files: DcpFiles | None = None,
    ) -> None:
        """Makes no call yet.

        Args:
            replica: This trainer's copy of the model.
            dataset: The same in all trainers.
            description: Of the data set, for the master.
            options: Those of the run.
            member: This trainer's session; the process's by default.
            new_round: Makes this member's part in a round.
            files: Of checkpoints.

        Raises:
            DataError: The address of this trainer is not of this machine.
        """
        self._replica, self._new_round = replica, new_round
        self.exchanged_bytes = 0
        """Of the tensors that this trainer has summed, sent or received, in rounds that have ended."""
        self._session = session() if member is None else member
        settings = self._session.settings
        self._groups = gloo_groups(settings.address)
        self._interrupt, self._stream_interrupt = Interrupt(), Interrupt()
        port = settings.exchange_port
        self._listener = Listener("" if port else settings.address, port)
        """For states that newcomers get while the others train."""
        self._incarnation = secrets.token_hex(8)
        self._is_training = False
        self._current: Generator[MemberStep, None, None] | None = None
        self._error: EdlError | None = None
        own_code = shared_code(replica.size, dataset.name, description, options)
        own_code |= {"torch": _version(), "model": replica.signature()}
        address = f"{settings.address}:{self._listener.address[1]}"
        self._rendezvous = Rendezvous(settings, self._incarnation, address, own_code)
        self._rendezvous.on_void(self._interrupt_calls)
        self._member = GroupMember(
            replica,
            dataset,
            description,
            options,
            session=self._session,
            rendezvous=self._rendezvous,
            on_stop=lambda: self.wake(None),
            files=DcpFiles() if files is None else files,
        )

    @property
    def result(self) -> SyncResult:
        """This trainer's view of the run so far."""
        progress, result = self._member.progress, self._member.result
        result.steps, result.records = progress.step, progress.records
        result.skipped, result.metrics = progress.skipped, dict(progress.metrics)
        return result

    def run(self, batches: MemberBatches) -> Generator[MemberStep, None, None]:
        """Yields one step after the other, until all data is trained.

        Raises:
            DataError: The program left out a micro-batch.
            TrainingError: A loss was not finite, and `on_nan` is "fail".
            Refused: This trainer's program or model differs from that of the others.
            Unavailable: The master was away for too long.
            SystemExit: SIGTERM came, and this trainer has left; the exit code is 143.
        """
        if self._begin():
            self._current = self._rounds(batches)
            yield from self._current
        self._end()

    def _end(self) -> None:
        """Raises what has ended the run, if anything has."""
        if self._error is not None:
            raise self._error
        if not self._member.result.whole:
            self._session.check()

    def wake(self, error: EdlError | None) -> None:
        """Makes this trainer leave after the current or next step: SIGTERM, or the job stops."""
        if error is not None:
            log.warning("%s", error)
            self._error = error
        self._member.leaving.set()
        self._member.leave_rendezvous()
        if not self._is_training:
            self._interrupt_calls()

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
        self._listener.close()
        self._interrupt.close()
        self._stream_interrupt.close()

    def __enter__(self) -> TorchEngine:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _interrupt_calls(self) -> None:
        """Ends all calls that wait for other members; on any thread."""
        self._interrupt.set()
        self._stream_interrupt.set()

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

    def _rounds(self, batches: MemberBatches) -> Generator[MemberStep, None, None]:
        """Takes part in rounds until all data is trained, or until this trainer leaves."""
        member, number, broken = self._member, 0, False
        while not (member.leaving.is_set() or member.result.whole):
            round_ = self._next_round(number, broken=broken)
            if round_ is None:
                break
            number, broken = round_.number, False
            self._interrupt.clear()
            self._stream_interrupt.clear()
            if self._rendezvous.newer(number) and member.leaving.is_set():
                break
            try:
                yield from self._run_round(round_, batches)
            except Mismatch:
                raise
            except RoundOver as error:
                broken = True
                self._groups.close()  # others may still wait for this member in that round
                log.info("round %d is over: %s", number, error)

    def _next_round(self, after: int, *, broken: bool) -> Round | None:
        try:
            return self._rendezvous.next(after, broken=broken)
        except Unavailable:
            if self._member.leaving.is_set():
                return None
            raise

    def _run_round(self, round_: Round, batches: MemberBatches) -> Iterator[MemberStep]:
        """Runs one round, from the first connection to its end."""
        member, settings = self._member, self._session.settings
        member.round_number = round_.number
        connection = Connection(settings.master, settings.token)
        client = Client(connection, settings.trainer, self._incarnation)
        waiting = Waiting(self._interrupt, self._rendezvous.waiting)
        link: GroupLink | None = None
        runner: TorchRound | None = None
        try:
            link = self._connect(round_, RoundStore(client, round_.number), waiting)
            connect_stream = partial(self._connect_stream, round_)
            link.streams = Streams(self._stream_interrupt, connect_stream)
            runner = self._new_round(member, link, round_, self._replica, batches)
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
                self.exchanged_bytes += link.exchanged_bytes
                link.close()
            self._groups.abandon(works)
            client.close()

    def _connect(self, round_: Round, keys: RoundStore, waiting: Waiting) -> GroupLink:
        """Connects the members of a round."""
        group = form_group(self._groups, round_, keys, waiting)
        return GroupLink(group, round_.rank, round_.world_size, waiting)

    def _connect_stream(self, round_: Round, ranks: Sequence[int], channel: int) -> Ring:
        """Connects a ring of members of a round, beside their group."""
        return Ring.connect(
            self._listener,
            [round_.members[rank].address for rank in ranks],
            ranks.index(round_.rank),
            number=round_.number,
            key=self._session.settings.token.encode(),
            interrupt=self._stream_interrupt,
            on_wait=self._rendezvous.waiting,
            channel=channel,
        )


def _version() -> str:
    """The version of torch, without its build: members with another one are refused."""
    return str(torch.__version__).split("+", maxsplit=1)[0]
