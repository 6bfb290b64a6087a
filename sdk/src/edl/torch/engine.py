"""Takes part in rounds over process groups of torch, step after step."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterator
from contextlib import AbstractContextManager
from functools import partial

import torch

from edl.master.client import Client
from edl.master.connection import Connection
from edl.master.protocol import Round
from edl.master.round_store import RoundStore
from edl.master.session import Session, session
from edl.overriding import override
from edl.sync.growth import Growth
from edl.sync.member_loop import MemberLoop
from edl.sync.options import RunSpec
from edl.torch.batches import MemberBatches
from edl.torch.groups.forming import form_group, gloo_groups
from edl.torch.groups.link import GroupLink
from edl.torch.groups.waiting import Waiting
from edl.torch.pods.commands import Announcer, Connect, End, Grow, SingleProcess
from edl.torch.state.dcp_files import DcpFiles
from edl.torch.state.replica import TorchReplica
from edl.torch.step import MemberStep
from edl.torch.step_policy import GradientSteps
from edl.torch.torch_round import RoundParts, TorchRound


class TorchEngine(MemberLoop):
    """One trainer's part in a job whose members sum gradients over process groups of torch."""

    def __init__(
        self,
        replica: TorchReplica,
        spec: RunSpec,
        member: Session | None,
        *,
        policy: GradientSteps | None = None,
        files: DcpFiles | None = None,
        announcer: Announcer | None = None,
    ) -> None:
        """Makes no call yet.

        Args:
            replica: This trainer's copy of the model, or its part of one.
            spec: The run's data set and options, the same in all trainers.
            member: This trainer's session; the process's by default.
            policy: How members compute steps; by default, they sum their gradients in each step.
            files: The format of checkpoints; by default, each member writes a part of the whole state.
            announcer: Sends commands to the other processes of this trainer; by default, there are none.

        Raises:
            DataError: The trainer's address is not an address of this machine.
        """
        own = session() if member is None else member
        self._groups = gloo_groups(own.settings.address)
        self._announcer = SingleProcess() if announcer is None else announcer
        self._replica = replica
        self._policy = GradientSteps(spec.options) if policy is None else policy
        self.exchanged_bytes = 0
        """Bytes of tensors that this trainer has summed, sent or received, in rounds that have ended."""
        # without the build, such as +cu132
        version = str(torch.__version__).split("+", maxsplit=1)[0]
        code = {"torch": version, "model": replica.signature()}
        files = DcpFiles() if files is None else files
        super().__init__(replica, spec, own, code=code, files=files)

    def run(self, batches: MemberBatches) -> Generator[MemberStep, None, None]:
        """Yields one step after the other, until all data is trained.

        Raises:
            DataError: The program left out a micro-batch.
            TrainingError: A loss was not finite, and `on_nan` is "fail".
            Refused: This trainer's program or model differs from that of the others.
            Unavailable: The master did not answer for too long.
            SystemExit: SIGTERM came, and this trainer has left; the exit code is 143.
        """
        yield from self._train(partial(self._take_part, batches))

    @override
    def close(self) -> None:
        if self._is_forked:
            self._groups.keep()
            return
        super().close()
        self._replica.close()

    @override
    def _end_connections(self) -> None:
        self._groups.close()

    @override
    def _interrupt_calls(self) -> None:
        self._announcer.end_round(self.member.round_number)
        super()._interrupt_calls()

    @override
    def _end(self) -> None:
        """Ends the other processes of this trainer; after SIGTERM, also ends the program."""
        result = self.result
        self._announcer.announce(
            End(
                exits=self._session.exits,
                whole=result.whole,
                late=result.late,
                steps=result.steps,
                records=result.records,
                redone=result.redone,
            )
        )
        super()._end()
        if not self.member.result.whole:
            self._session.check()

    @contextlib.contextmanager
    def _take_part(self, batches: MemberBatches, round_: Round) -> Iterator[TorchRound]:
        settings = self._session.settings
        connection = Connection(settings.master, settings.token)
        client = Client(connection, settings.trainer, self._incarnation)
        waiting = Waiting(self.interrupt, self.rendezvous.waiting)
        link: GroupLink | None = None
        try:
            link = self._connect(round_, RoundStore(client, round_.number), waiting)
            growth = Growth(
                self._replica,
                link,
                round_,
                self._streams(round_),
                self.rendezvous.waiting,
                connecting=partial(self._connecting, round_),
            )
            yield TorchRound(
                RoundParts(
                    member=self.member,
                    link=link,
                    round=round_,
                    replica=self._replica,
                    batches=batches,
                    growth=growth,
                    policy=self._policy,
                )
            )
        finally:
            if not self._is_forked:
                if link is not None:
                    self.exchanged_bytes += link.exchanged_bytes
                    link.close()
                self._groups.abandon([] if link is None else link.works)
                client.close()

    def _connect(self, round_: Round, keys: RoundStore, waiting: Waiting) -> GroupLink:
        """Connects this member, including its other processes, to the members of a round."""
        command = Connect(
            number=round_.number,
            rank=round_.rank,
            world_size=round_.world_size,
            trainer=self._session.settings.trainer,
            incarnation=self._incarnation,
        )
        with self._announcer.exchange(command, round_.number):
            group = form_group(self._groups, round_, keys, waiting)
        return GroupLink(group, round_.rank, round_.world_size, waiting, self._announcer)

    def _connecting(
        self, round_: Round, receivers: Collection[int]
    ) -> AbstractContextManager[object]:
        """A context in which all processes of this trainer connect their rings to the receivers."""
        return self._announcer.exchange(Grow(sorted(receivers)), round_.number)
