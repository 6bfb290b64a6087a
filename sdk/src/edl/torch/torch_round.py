"""One round over a process group of torch, in which the program computes the steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from edl.errors import RoundOver
from edl.master.protocol import Round
from edl.overriding import override
from edl.sync import step_flags
from edl.sync.group_member import GroupMember
from edl.sync.group_round import GroupRound
from edl.sync.growth import Growth
from edl.sync.round_start import encode_json
from edl.sync.step_flags import StepFlags
from edl.torch.batches import MemberBatches, MemberReader
from edl.torch.groups.link import GroupLink
from edl.torch.state.replica import TorchReplica
from edl.torch.step import MemberStep, StepCalls
from edl.torch.step_policy import GradientSteps


@dataclass(frozen=True)
class RoundParts:
    """The objects with which a member takes part in a round; built with keywords."""

    member: GroupMember
    link: GroupLink
    round: Round
    replica: TorchReplica
    batches: MemberBatches
    growth: Growth
    policy: GradientSteps


class TorchRound(GroupRound):
    """A round in which `steps` yields one step after the other for the program to compute."""

    keeps_gradient = False
    _policy: GradientSteps

    def __init__(self, parts: RoundParts) -> None:
        self._sums, self._model, self._batches = parts.link, parts.replica, parts.batches
        self._share = 0.0
        self._is_sum_finite = False
        super().__init__(
            parts.member, parts.link, parts.round, growth=parts.growth, policy=parts.policy
        )

    @override
    def _new_reader(self) -> MemberReader:
        reader = self._batches.new_reader(self._member.leased_records())
        self._assignments = self._policy.new_reader(reader)
        return self._assignments

    @override
    def drop_gradient(self) -> None:
        """Replaces the buckets if sums of the gradient may still be under way."""
        if self._sums.has_pending:
            self._model.move()
        else:
            self._model.clear()

    @override
    def steps(self) -> Iterator[MemberStep]:
        """Yields each step for the program to compute."""
        while self._has_plans():
            if not self._plans:
                continue
            step = self._begin_step()
            with self._member.computing(is_long=self._policy.are_long):
                yield step
            if step.is_cut_short:
                raise RoundOver("members of this round are lost")
            self._share = step.share
            records = step.end()
            self._metric_names = sorted(step.flags.metrics) or self._metric_names
            self._finish_step(step.flags, step.problem, records)
            if self._ends_with(step.flags):
                return

    def _begin_step(self) -> MemberStep:
        plan, _ = self._plans[0]
        self._exchange_s = 0.0
        self._progress.flight = plan
        if not self._growth.applies:
            self._model.clear()  # drops the previous step's sum, which this newcomer could not apply
        self._model.begin_step()
        calls = StepCalls(
            next_batch=self._batches.next,
            micro=self._micro,
            before_last=self._begin_sums,
            is_over=lambda: self._sums.is_over,
            versions=self._model.buckets.versions,
        )
        assignment = self._assignments.take(plan)
        return self._policy.new_step(
            plan, assignment, calls, step=self._progress.step, growth=self._growth
        )

    def _begin_sums(self) -> None:
        """Makes a step's last backward begin each sum as soon as its gradients are complete."""
        if self._round.world_size > 1:
            self._model.buckets.begin(self._sums.begin_sum, may_end=self._policy.may_cut_short)

    @override
    def _exchange(self, flags: StepFlags) -> None:
        def exchange() -> None:
            self._growth.write_flags(flags)
            self._sum_gradients(flags)
            self._growth.take_parts(flags)

        self._is_sum_finite = self._policy.complete(
            exchange, self._model.buckets.is_finite, self._round.number
        )
        self._growth.read_flags(flags)

    @override
    def _sum_gradients(self, flags: StepFlags) -> None:
        self._policy.contribute(flags, self._share)
        if self._round.world_size == 1:
            return
        buckets, statistics = self._model.buckets, self._model.statistics
        write_flags(flags, buckets.tail)
        works = buckets.finish(self._sums.begin_sum)
        if statistics:
            statistics.write(self._share)
            works = [*works, self._sums.begin_sum(statistics.flat)]
        self._timed(lambda: self._sums.wait_for(works))
        if statistics and not flags.unreadable:
            statistics.read()
        read_flags(flags, buckets.tail, self._metric_names)
        if not flags.same_names:
            payloads = self._timed(lambda: self._ring.gather(encode_json(flags.metrics)))
            flags.metrics = step_flags.sum_by_name(map(json.loads, payloads))

    @override
    def _is_finite(self) -> bool:
        return self._is_sum_finite

    @override
    def _gradient_problem(self) -> str:
        return ""

    @override
    def _apply(self, scale: float) -> None:
        self._model.step(scale)

    @override
    def _save(self, *, wait: bool = False) -> None:
        self._policy.save(self._member, self._round.rank, self._growth.workers, wait=wait)


def write_flags(flags: StepFlags, tail: Any) -> None:
    """Writes a member's flags and metrics after its gradient."""
    values = np.empty(step_flags.SIZE, np.float32)
    flags.write(values)
    tail.copy_(torch.from_numpy(values))


def read_flags(flags: StepFlags, tail: Any, names: list[str]) -> None:
    """Reads the sums of all members' flags and metrics.

    Args:
        flags: This member's flags, which are replaced by the sums.
        tail: The numbers after the gradient.
        names: Names of the metrics, for a member that computed nothing.
    """
    flags.read(tail.cpu().numpy(), names)
