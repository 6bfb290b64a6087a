"""The first process of a pod takes part in rounds for all of its processes. Decision 0069.

It sends commands to the other processes. Each process has its own part of the state, and its own
connection to the processes of the same rank in the other pods. A step is applied in all processes
of a pod, or in none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edl.errors import DataError, RoundOver
from edl.master.session import Session
from edl.overriding import override
from edl.sync import plan_message
from edl.sync.group_member import GroupMember
from edl.sync.growth import Growth
from edl.sync.options import RunSpec, SyncOptions
from edl.sync.plans import Assignment, Plan
from edl.torch.batches import MemberReader
from edl.torch.engine import TorchEngine
from edl.torch.pods.commands import BeginStep, NewReader, Request, Save
from edl.torch.pods.follower import Follower
from edl.torch.pods.pod import Pod, require_ok
from edl.torch.pods.step import PodStep, process_share
from edl.torch.state.dcp_files import PodFiles
from edl.torch.state.norm_statistics import NormStatistics
from edl.torch.state.replica import ModelSetup, TorchReplica
from edl.torch.step import MemberStep, StepCalls
from edl.torch.step_policy import GradientSteps


class _PodReader(MemberReader):
    """Divides the pod's micro-batches among its processes and requests them."""

    def __init__(self, reader: MemberReader, pod: Pod) -> None:
        self._reader, self._pod = reader, pod
        self._counted: dict[str, Assignment] = {}
        pod.announce(NewReader())

    @override
    def request(self, plan: Plan, micro_batches: Assignment) -> None:
        text = plan_message.encode([plan], (), over=False).decode()
        self._pod.announce(Request(text, [index for index, _ in micro_batches]))
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


class PodSteps(GradientSteps):
    """The policy of a pod's first process: all processes compute each step and complete it together."""

    may_cut_short = False  # the pod's processes sum gradients in backward, and wait for each other

    def __init__(
        self, options: SyncOptions, replica: TorchReplica, pod: Pod, files: PodFiles
    ) -> None:
        """Creates the policy.

        Args:
            options: The run's options.
            replica: This process's part of the model.
            pod: The processes of the pod.
            files: This process's part of checkpoints.
        """
        super().__init__(options)
        self._replica, self._pod, self._files = replica, pod, files

    @override
    def new_reader(self, reader: MemberReader) -> MemberReader:
        return _PodReader(reader, self._pod)

    @override
    def new_step(
        self, plan: Plan, assignment: Assignment, calls: StepCalls, *, step: int, growth: Growth
    ) -> MemberStep:
        self._pod.announce(BeginStep(plan.name, step))
        pod_calls = StepCalls(
            next_batch=calls.next_batch, micro=calls.micro, before_last=calls.before_last
        )
        return PodStep(plan, assignment, pod_calls, pod=self._pod, growth=growth)

    @override
    def complete(
        self, exchange: Callable[[], None], is_finite: Callable[[], bool], number: int
    ) -> bool:
        error: RoundOver | None = None
        try:
            exchange()
        except RoundOver as over:
            self._pod.end_round(number)  # otherwise the other processes would wait for lost members
            error = over
        reports = self._pod.gather({"ok": error is None, "finite": is_finite()})
        if error is not None:
            raise error
        require_ok(reports)
        return all(report["finite"] for report in reports)

    @override
    def save(self, member: GroupMember, rank: int, workers: int, *, wait: bool) -> None:
        """Saves the state's shards: each process of the pod of rank 0 writes its own."""
        del workers  # all pods have the same shards
        if rank == 0 and self._options.checkpoints is not None:
            self._pod.announce(Save(member.progress.step, wait))
            self._files.stage_together(self._replica)
            member.save_checkpoint(0, self._pod.size, wait=wait)


def pod_process(
    mesh: Any,
    setup: ModelSetup,
    spec: RunSpec,
    member: Session | None,
) -> TorchEngine | Follower:
    """Returns this process's part in its pod; all processes of the pod call it.

    Args:
        mesh: The mesh of the processes that share the model's parameters.
        setup: The model and its optimizer.
        spec: The run's data set and options, the same in all trainers.
        member: This trainer's session; the process's by default.

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
    if not pod.is_first:
        return Follower(TorchReplica(setup), spec, member, pod=pod)
    replica = TorchReplica(setup, announcer=pod)
    files = PodFiles(pod, replica)
    policy = PodSteps(spec.options, replica, pod, files)
    return TorchEngine(replica, spec, member, policy=policy, files=files, announcer=pod)
