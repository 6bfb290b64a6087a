"""Takes part in rounds over process groups of torch, step after step, whatever reads the records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from functools import partial

import torch

from edl.master.client import Client
from edl.master.connection import Connection
from edl.master.protocol import Round
from edl.master.round_store import RoundStore
from edl.master.session import Session, session
from edl.overriding import override
from edl.sync.member_loop import MemberLoop
from edl.sync.options import RunSpec
from edl.torch.groups.forming import form_group, gloo_groups
from edl.torch.groups.link import GroupLink
from edl.torch.groups.waiting import Waiting
from edl.torch.state.dcp_files import DcpFiles
from edl.torch.state.replica import TorchReplica
from edl.torch.step import MemberStep
from edl.torch.torch_round import MemberBatches, RoundParts, TorchRound


class TorchEngine(MemberLoop):
    """One trainer's part in a job whose members sum gradients over process groups of torch."""

    def __init__(
        self,
        replica: TorchReplica,
        spec: RunSpec,
        member: Session | None,
        *,
        new_round: Callable[[RoundParts], TorchRound] = TorchRound,
        files: DcpFiles | None = None,
    ) -> None:
        """Makes no call yet.

        Args:
            replica: This trainer's copy of the model.
            spec: The run's data set and options, the same in all trainers.
            member: This trainer's session; the process's by default.
            new_round: Makes this member's part in a round.
            files: Of checkpoints.

        Raises:
            DataError: The address of this trainer is not of this machine.
        """
        own = session() if member is None else member
        self._groups = gloo_groups(own.settings.address)
        self._replica, self._new_round = replica, new_round
        self.exchanged_bytes = 0
        """Of the tensors that this trainer has summed, sent or received, in rounds that have ended."""
        code = {"torch": _version(), "model": replica.signature()}
        files = DcpFiles() if files is None else files
        super().__init__(replica, spec, own, code=code, files=files)

    def run(self, batches: MemberBatches) -> Generator[MemberStep, None, None]:
        """Yields one step after the other, until all data is trained.

        Raises:
            DataError: The program left out a micro-batch.
            TrainingError: A loss was not finite, and `on_nan` is "fail".
            Refused: This trainer's program or model differs from that of the others.
            Unavailable: The master was away for too long.
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
    def _end(self) -> None:
        """Ends the program after SIGTERM."""
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
            link.streams = self._streams(round_)
            yield self._new_round(
                RoundParts(
                    member=self.member,
                    link=link,
                    round=round_,
                    replica=self._replica,
                    batches=batches,
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
        """Connects the members of a round."""
        group = form_group(self._groups, round_, keys, waiting)
        return GroupLink(group, round_.rank, round_.world_size, waiting)


def _version() -> str:
    """The version of torch, without its build: members with another one are refused."""
    return str(torch.__version__).split("+", maxsplit=1)[0]
