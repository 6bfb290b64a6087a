"""Takes part in rounds as the first process of a pod: the one that talks to the master."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from edl.errors import DataError, RoundOver
from edl.master.protocol import Round
from edl.master.round_store import RoundStore
from edl.master.session import Session
from edl.overriding import override
from edl.sync.options import RunSpec, SyncOptions
from edl.torch.engine import TorchEngine
from edl.torch.groups.forming import form_group
from edl.torch.groups.link import GroupLink
from edl.torch.groups.waiting import Waiting
from edl.torch.pods.follower import Follower
from edl.torch.pods.pod import Pod
from edl.torch.pods.round import PodLink, PodReplica, PodRound
from edl.torch.state.dcp_files import PodFiles
from edl.torch.state.norm_statistics import NormStatistics
from edl.torch.state.replica import ModelSetup, TorchReplica


class PodEngine(TorchEngine):
    """One pod's part in a job; the other processes of the pod follow, see `edl.torch.pods.follower`."""

    def __init__(
        self,
        replica: PodReplica,
        spec: RunSpec,
        member: Session | None,
        *,
        pod: Pod,
    ) -> None:
        """Makes no call yet.

        Args:
            replica: The pod's.
            spec: As in `TorchEngine`.
            member: As in `TorchEngine`.
            pod: Its processes.
        """
        self._pod = pod
        files = PodFiles(pod, replica)
        new_round = partial(PodRound, pod=pod, files=files)
        super().__init__(replica, spec, member, new_round=new_round, files=files)

    @override
    def _interrupt_calls(self) -> None:
        """Ends the calls of the other processes, too."""
        self._pod.news.write(self.member.round_number)
        super()._interrupt_calls()

    @override
    def _connect(self, round_: Round, keys: RoundStore, waiting: Waiting) -> GroupLink:
        """Has the other processes connect to those of their rank."""
        trainer, incarnation = self._session.settings.trainer, self._incarnation
        self._pod.send(
            do="connect",
            number=round_.number,
            place=[round_.rank, round_.world_size],
            identity=[trainer, incarnation],
        )
        try:
            group = form_group(self._groups, round_, keys, waiting)
        except RoundOver:
            self._pod.news.write(round_.number)
            self._pod.agree(ok=False)
            raise
        self._pod.check()
        return PodLink(group, round_.rank, round_.world_size, waiting, pod=self._pod)

    @override
    def _end(self) -> None:
        """Ends the other processes, too."""
        result = self.result
        self._pod.send(
            do="end",
            exits=self._session.exits,
            whole=result.whole,
            late=result.late,
            steps=result.steps,
            records=result.records,
            redone=result.redone,
        )
        super()._end()


def check_options(options: SyncOptions, *, local_steps: bool) -> None:
    """Refuses what a model that is sharded cannot do.

    Raises:
        DataError: It was asked for.
    """
    name = "local_steps" if local_steps else "constant_batch=False"
    if local_steps or not options.constant_batch:
        raise DataError(f"{name} is given, and the model is sharded by fully_shard: leave it out")


def pod_process(
    mesh: Any,
    setup: ModelSetup,
    spec: RunSpec,
    member: Session | None,
) -> PodEngine | Follower:
    """Returns this process's part in its pod; all processes of the pod call it.

    Args:
        mesh: Of the processes that hold the model together.
        setup: As in `TorchReplica`.
        spec: As in `TorchEngine`.
        member: As in `TorchEngine`.

    Raises:
        DataError: The model has batch normalisation.
    """
    if NormStatistics(setup.model):
        raise DataError(
            "the model is sharded by fully_shard and has batch normalisation, whose running statistics "
            "would differ in each process: use LayerNorm or GroupNorm"
        )
    pod = Pod(mesh)
    code = {**spec.options.code, "pod": f"{pod.size} processes"}
    spec = replace(spec, options=replace(spec.options, code=code))
    if pod.is_first:
        return PodEngine(PodReplica(setup, pod=pod), spec, member, pod=pod)
    return Follower(TorchReplica(setup), spec, member, pod=pod)
