"""A round in which each member is a pod of several processes, as their first one sees it.

Each of the others is told what to do, and has its own part of the state and its own connection to the
processes of the same rank in the other pods. A step is applied in all processes of a pod, or in none.
Decision 0069.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from edl.errors import RoundOver
from edl.overriding import override
from edl.sync import plan_message
from edl.sync.growth import Streams
from edl.sync.plans import Assignment, Plan
from edl.sync.replica import State
from edl.sync.step_flags import StepFlags
from edl.torch.groups.link import GroupLink
from edl.torch.groups.waiting import Waiting
from edl.torch.pods.growth import LeadingGrowth
from edl.torch.pods.pod import Pod, require_ok
from edl.torch.pods.step import PodStep, process_share
from edl.torch.state.dcp_files import PodFiles
from edl.torch.state.replica import ModelSetup, TorchReplica
from edl.torch.step import StepCalls
from edl.torch.torch_round import MemberReader, RoundParts, TorchRound


class PodReplica(TorchReplica):
    """A model that the processes of a pod hold together; all of them change it alike."""

    def __init__(self, setup: ModelSetup, *, pod: Pod) -> None:
        super().__init__(setup)
        self._pod = pod

    @override
    def step(self, scale: float) -> None:
        self._pod.send(do="apply", scale=scale)
        super().step(scale)

    @override
    def _undo_step(self) -> None:
        """Has the other processes clear all of theirs."""
        self._pod.send(do="clear")
        super()._undo_step()

    @override
    def load(self, state: State) -> None:
        """Has the other processes load what they have received or read."""
        self._pod.send(do="load")
        super().load(state)


class PodLink(GroupLink):
    """The first process's link; a state goes over those of the other processes, too."""

    def __init__(
        self, group: Any, rank: int, world_size: int, waiting: Waiting, *, pod: Pod
    ) -> None:
        """Makes no call; the other processes of the pod have links of their own."""
        super().__init__(group, rank, world_size, waiting)
        self._pod = pod

    @override
    def broadcast(
        self, arrays: Sequence[Any] | None, meta: bytes, source: int
    ) -> tuple[bytes, list[Any]]:
        meta, received = super().broadcast(arrays, meta, source)
        if received:
            self._pod.send(do="broadcast", source=source)
            self._pod.check()
        return meta, received

    @override
    def hand_over(
        self, arrays: Sequence[Any] | None, meta: bytes, receivers: Collection[int]
    ) -> tuple[bytes, list[Any]]:
        meta, received = super().hand_over(arrays, meta, receivers)
        if received or arrays:
            self._pod.send(do="hand_over", receivers=sorted(receivers))
            self._pod.check()
        return meta, received


class _PodReader(MemberReader):
    """Requests each process's micro-batches of the pod's share."""

    def __init__(self, reader: MemberReader, pod: Pod) -> None:
        self._reader, self._pod = reader, pod
        self._counted: dict[str, Assignment] = {}
        pod.send(do="read_anew")

    @override
    def request(self, plan: Plan, micro_batches: Assignment) -> None:
        text = plan_message.encode([plan], (), over=False).decode()
        indices = [index for index, _ in micro_batches]
        self._pod.send(do="request", plan=text, indices=indices)
        share = process_share(micro_batches, self._pod.rank, self._pod.size)
        self._counted[plan.name] = share.counted
        self._reader.request(plan, share.read)

    @override
    def take(self, plan: Plan) -> Assignment:
        self._reader.take(plan)
        return self._counted.pop(plan.name)

    @override
    def close(self, join_s: float) -> None:
        self._reader.close(join_s)


class PodRound(TorchRound):
    """A round as the first process of a pod takes part in it."""

    may_cut_short = False  # the pod's processes sum gradients in backward, and wait for each other

    def __init__(self, parts: RoundParts, *, pod: Pod, files: PodFiles) -> None:
        self._pod, self._files = pod, files
        self._all_finite = False
        super().__init__(parts)

    @override
    def _new_growth(self, streams: Streams | None) -> LeadingGrowth:
        waiting = self._member.rendezvous.waiting
        self._pod_growth = LeadingGrowth(
            self._model, self._ring, self._round, streams, waiting, pod=self._pod
        )
        return self._pod_growth

    @override
    def _new_reader(self) -> MemberReader:
        self._assignments = _PodReader(super()._new_reader(), self._pod)
        return self._assignments

    @override
    def _new_step(self, plan: Plan, assignment: Assignment) -> PodStep:
        """Has the other processes begin theirs."""
        self._pod.send(do="step", plan=plan.name, step=self._progress.step)
        calls = StepCalls(
            next_batch=self._batches.next, micro=self._micro, before_last=self._begin_sums
        )
        return PodStep(plan, assignment, calls, pod=self._pod, growth=self._pod_growth)

    @override
    def _exchange(self, flags: StepFlags) -> None:
        """Completes the step in all processes of the pod, or in none."""
        error: RoundOver | None = None
        try:
            self._growth.write_flags(flags)
            self._sum_gradients(flags)
            self._growth.take_parts(flags)
        except RoundOver as over:
            self._pod.news.write(self._round.number)  # the other processes wait in vain, too
            error = over
        is_finite = self._model.buckets.is_finite()
        reports = self._pod.gather({"ok": error is None, "finite": is_finite})
        self._all_finite = all(report["finite"] for report in reports)
        if error is not None:
            raise error
        require_ok(reports)
        self._growth.read_flags(flags)

    @override
    def _is_finite(self) -> bool:
        return self._all_finite

    @override
    def _save(self, *, wait: bool = False) -> None:
        """Saves the shards of the leading pod, each process its own."""
        if self._is_leader and self._options.checkpoints is not None:
            self._pod.send(do="save", step=self._progress.step, wait=wait)
            self._files.stage_together(self._model)
            self._member.save_checkpoint(0, self._pod.size, wait=wait)
