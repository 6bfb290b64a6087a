"""One process's part of a pod's step; all processes compute the same number of micro-batches.

FSDP2 gathers parameters and sums gradients over the pod in each micro-batch. A process that would
have fewer micro-batches than another computes an additional one with weight 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from edl.master import protocol
from edl.overriding import override
from edl.sync.growth import Growth, GrowthReport
from edl.sync.plans import Assignment, Plan, assigned_indices
from edl.sync.step_flags import StepFlags, sum_by_name
from edl.sync.step_reader import UnreadableTask
from edl.torch.pods.pod import Pod
from edl.torch.step import MemberStep, StepCalls


class ProcessShare(NamedTuple):
    """The part of a pod's micro-batches that one of its processes computes."""

    read: Assignment
    """The micro-batches, each with the records that the process reads."""
    counted: Assignment
    """The micro-batches, each with the records that count; an additional micro-batch has none."""


def process_share(assignment: Assignment, rank: int, size: int) -> ProcessShare:
    """Returns one process's share of the micro-batches of a pod with `size` processes (pure)."""
    own = [assignment[index] for index in assigned_indices(len(assignment), rank, size)]
    missing = -(-len(assignment) // size) - len(own)
    padding = assignment[:1] * missing
    return ProcessShare(own + padding, own + [(index, ()) for index, _ in padding])


@dataclass(frozen=True)
class StepReport:
    """The result of one process's part of a step, for the other processes of its pod."""

    metrics: dict[str, float]
    """Sums of the micro-batches' metrics, weighted by their shares of the step."""
    problem: str
    """The problem with a loss or a gradient, or ""."""
    growth: GrowthReport
    unreadable: UnreadableReport | None
    """The first task that this process could not read."""

    @classmethod
    def from_json(cls, report: protocol.Json) -> StepReport:
        """Reads a report that `dataclasses.asdict` returned."""
        task = report["unreadable"]
        return cls(
            metrics=report["metrics"],
            problem=report["problem"],
            growth=GrowthReport(**report["growth"]),
            unreadable=None if task is None else UnreadableReport(**task),
        )


@dataclass(frozen=True)
class UnreadableReport:
    """Like `UnreadableTask`, but with the task's name instead of its lease."""

    task: str
    reason: str
    record: int | None
    transient: bool


class PodStep(MemberStep):
    """A process's part of a step; after `end`, its flags are those of the whole pod."""

    def __init__(
        self,
        plan: Plan,
        assignment: Assignment,
        calls: StepCalls,
        *,
        pod: Pod,
        growth: Growth,
    ) -> None:
        """Reads nothing yet; micro-batches without records have the weight 0."""

        def backward(loss: Any, weight: float, flags: StepFlags) -> str:
            # FSDP2 takes the mean over the pod's processes
            return calls.backward(loss, weight * pod.size, flags)

        super().__init__(plan, assignment, replace(calls, backward=backward))
        self._pod, self._growth = pod, growth

    @override
    def __iter__(self) -> Iterator[Any]:
        """Yields this process's micro-batches, or none if a process of the pod cannot read its records."""
        batches: list[Any] = []
        for index, spans in self._assignment:
            batches.append(self._read(index, spans))
            if self.unreadable is not None:
                break
        if not self._pod.agree(ok=self.unreadable is None):
            self._assignment = []
        for (index, spans), batch in zip(self._assignment, batches):
            self._check_trained()
            self._begin_micro(index, spans)
            yield batch
        self._check_trained()

    @override
    def end(self) -> UnreadableTask | None:
        """Returns the first task that a process of this pod could not read."""
        own = super().end()
        report = StepReport(
            metrics=dict(self.flags.metrics),
            problem=self.problem,
            growth=self._growth.report(),
            unreadable=None
            if own is None
            else UnreadableReport(own.lease.task, own.reason, own.record, own.transient),
        )
        reports = [StepReport.from_json(each) for each in self._pod.gather(asdict(report))]
        self._growth.adopt(each.growth for each in reports)
        problems = [each.problem for each in reports if each.problem]
        tasks = [each.unreadable for each in reports if each.unreadable is not None]
        self.flags.metrics = sum_by_name(each.metrics for each in reports)
        self.problem = "; ".join(dict.fromkeys(problems))
        self.flags.nan, self.flags.unreadable = float(len(problems)), float(len(tasks))
        if not tasks:
            return None
        lease = next(s.lease for s in self._plan.spans if s.lease.task == tasks[0].task)
        return UnreadableTask(lease, tasks[0].reason, tasks[0].record, tasks[0].transient)
