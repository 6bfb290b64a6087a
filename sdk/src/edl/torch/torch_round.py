"""One round over a process group of torch, in which the program computes the steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from edl.errors import DataError, RoundOver
from edl.master.protocol import Round
from edl.overriding import override
from edl.sources.leased_records import LeasedRecords
from edl.sync import step_flags
from edl.sync.group_member import GroupMember
from edl.sync.group_round import GroupRound, PlanReader
from edl.sync.plans import Assignment, Plan
from edl.sync.round_start import encode_json
from edl.sync.step_flags import StepFlags
from edl.torch.groups.link import GroupLink
from edl.torch.sampler import IndexReader, LeasedSampler
from edl.torch.state.replica import TorchReplica
from edl.torch.step import MemberStep, StepCalls


class MemberReader(PlanReader, Protocol):
    """A reader that gets a member's part of each planned step, and returns it when the step begins."""

    def take(self, plan: Plan) -> Assignment:
        """Returns this member's micro-batches of a step that was requested, once."""
        ...


class MemberBatches(Protocol):
    """A source of this member's micro-batches, one after the other."""

    def new_reader(self, records: LeasedRecords) -> MemberReader:
        """Returns a new reader; batches that were read ahead are dropped."""
        ...

    def next(self) -> Any:
        """Returns the next micro-batch; raises whatever its source raises."""
        ...


class LoaderBatches(MemberBatches):
    """Batches from a `DataLoader`, which is iterated again where it has run out of planned ones."""

    def __init__(self, loader: Any, sampler: LeasedSampler) -> None:
        self._loader, self._sampler = loader, sampler
        self._iterator: Iterator[Any] | None = None

    @override
    def new_reader(self, records: LeasedRecords) -> IndexReader:
        self._iterator = None
        return IndexReader(records, self._sampler)

    @override
    def next(self) -> Any:
        for _ in range(2):
            if self._iterator is None:
                self._iterator = self._new_iterator()
            try:
                return next(self._iterator)
            except StopIteration:
                self._iterator = None
        raise DataError(
            "the DataLoader has no batch left: nothing else may take batches from training.sampler"
        )

    def _new_iterator(self) -> Iterator[Any]:
        """Returns a new iterator; the seed that it draws for its workers is not one of a micro-batch's numbers."""
        state = torch.get_rng_state()
        iterator: Iterator[Any] = iter(self._loader)
        torch.set_rng_state(state)
        return iterator


@dataclass(frozen=True)
class RoundParts:
    """What a member takes part in a round with; built with keywords."""

    member: GroupMember
    link: GroupLink
    round: Round
    replica: TorchReplica
    batches: MemberBatches


class TorchRound(GroupRound):
    """A round of a `Training`; `steps` yields one step after the other."""

    keeps_gradient = False
    min_plans = 24  # a `DataLoader` reads some batches ahead
    has_long_steps = False
    """Whether a step may take minutes."""
    may_cut_short = True
    """Whether a member may leave a backward before its end."""

    def __init__(self, parts: RoundParts) -> None:
        self._sums, self._model, self._batches = parts.link, parts.replica, parts.batches
        self._share = 0.0
        super().__init__(parts.member, parts.link, parts.round, parts.link.streams)

    @override
    def _new_reader(self) -> MemberReader:
        self._assignments = self._batches.new_reader(self._member.leased_records())
        return self._assignments

    @override
    def drop_gradient(self) -> None:
        """Replaces the buckets where sums of the gradient may still be under way."""
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
            with self._member.computing(is_long=self.has_long_steps):
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
            self._model.clear()  # the sum of the step before, which this newcomer could not apply
        self._model.begin_step()
        return self._new_step(plan, self._assignments.take(plan))

    def _new_step(self, plan: Plan, assignment: Assignment) -> MemberStep:
        """Returns this member's part of a step."""
        calls = StepCalls(
            next_batch=self._batches.next,
            micro=self._micro,
            before_last=self._begin_sums,
            is_over=lambda: self._sums.is_over,
            versions=self._model.buckets.versions,
        )
        return MemberStep(plan, assignment, calls)

    def _begin_sums(self) -> None:
        """Lets the last backward of a step begin sums as soon as their gradients are complete."""
        if self._round.world_size > 1:
            self._model.buckets.begin(self._sums.begin_sum, may_end=self.may_cut_short)

    @override
    def _sum_gradients(self, flags: StepFlags) -> None:
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
        return self._model.buckets.is_finite()

    @override
    def _gradient_problem(self) -> str:
        return ""

    @override
    def _apply(self, scale: float) -> None:
        self._model.step(scale)


def write_flags(flags: StepFlags, tail: Any) -> None:
    """Writes a member's flags and metrics behind its gradient."""
    values = np.empty(step_flags.SIZE, np.float32)
    flags.write(values)
    tail.copy_(torch.from_numpy(values))


def read_flags(flags: StepFlags, tail: Any, names: list[str]) -> None:
    """Reads all members' flags and metrics, of these names where this one computed nothing."""
    flags.read(tail.cpu().numpy(), names)
