"""A step of one process of a pod: all of them compute the same number of micro-batches.

FSDP2 gathers parameters and sums gradients over the pod in each micro-batch, so a process that has
fewer than another computes one more that counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from edl.master import protocol
from edl.overriding import override
from edl.sync.plans import Assignment, Plan, assigned_indices
from edl.sync.step_flags import sum_by_name
from edl.sync.step_reader import UnreadableTask
from edl.torch.pods.growth import PodGrowth
from edl.torch.pods.pod import Pod
from edl.torch.step import MemberStep, StepCalls


class ProcessShare(NamedTuple):
    """The micro-batches of a pod's share that one of its processes computes."""

    read: Assignment
    """With the records that it reads."""
    counted: Assignment
    """The same with the records that count: none where another process counts them."""


def process_share(assignment: Assignment, rank: int, size: int) -> ProcessShare:
    """Returns what one of `size` processes computes of its pod's micro-batches (pure)."""
    own = [assignment[index] for index in assigned_indices(len(assignment), rank, size)]
    missing = -(-len(assignment) // size) - len(own)
    padding = assignment[:1] * missing
    return ProcessShare(own + padding, own + [(index, ()) for index, _ in padding])


class PodStep(MemberStep):
    """A process's part of a step; `end` makes its flags those of the whole pod."""

    def __init__(
        self,
        plan: Plan,
        assignment: Assignment,
        calls: StepCalls,
        *,
        pod: Pod,
        growth: PodGrowth,
    ) -> None:
        """Reads nothing yet; micro-batches without records count nothing."""
        super().__init__(plan, assignment, calls)
        self._pod, self._growth = pod, growth

    @override
    def __iter__(self) -> Iterator[Any]:
        """Yields this process's micro-batches; none where a process of the pod cannot read its records."""
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
        """Returns what some process of this pod could not read."""
        own = super().end()
        task: protocol.Json = {}
        if own is not None:
            task = {"task": own.lease.task, "why": own.reason, "record": own.record}
            task["transient"] = own.transient
        report = {"metrics": self.flags.metrics, "problem": self.problem, "unreadable": task}
        reports = self._pod.gather({**report, "growth": self._growth.report()})
        self._growth.hear([report["growth"] for report in reports])
        problems = [report["problem"] for report in reports if report["problem"]]
        tasks = [report["unreadable"] for report in reports if report["unreadable"]]
        self.flags.metrics = sum_by_name(report["metrics"] for report in reports)
        self.problem = "; ".join(dict.fromkeys(problems))
        self.flags.nan, self.flags.unreadable = float(len(problems)), float(len(tasks))
        return self._as_unreadable(tasks[0]) if tasks else None

    def _as_unreadable(self, task: protocol.Json) -> UnreadableTask:
        lease = next(s.lease for s in self._plan.spans if s.lease.task == task["task"])
        return UnreadableTask(lease, task["why"], task["record"], task["transient"])

    @override
    def _add_gradient(self, loss: Any, weight: float) -> None:
        # FSDP2 takes the mean over the pod's processes
        super()._add_gradient(loss, weight * self._pod.size)
