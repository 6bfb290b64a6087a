"""One round over a ring of connections, in which replicas compute the steps."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from typing import cast

import numpy as np

from edl.collective import Ring
from edl.master.protocol import Round
from edl.overriding import override
from edl.sync import step_flags
from edl.sync.group_member import GroupMember
from edl.sync.group_round import GroupRound
from edl.sync.growth import Growth, Streams
from edl.sync.plans import Plan
from edl.sync.replica import Replica
from edl.sync.round_start import encode_json
from edl.sync.step_flags import StepFlags, is_finite
from edl.sync.step_policy import StepPolicy
from edl.sync.step_reader import StepReader, StepRecords, UnreadableTask


class RoundRunner(GroupRound):
    """A round over a ring of connections; it calls the member's `Replica`."""

    def __init__(self, member: GroupMember, ring: Ring, round_: Round, streams: Streams) -> None:
        growth = Growth(member.replica, ring, round_, streams, member.rendezvous.waiting)
        super().__init__(member, ring, round_, growth=growth, policy=StepPolicy(member.options))
        self._sums = ring
        self._model = cast("Replica", member.replica)  # `edl.sync.train` accepts only a `Replica`

    @override
    def _new_reader(self) -> StepReader:
        self._step_reader = StepReader(self._member.leased_records())
        return self._step_reader

    @override
    def steps(self) -> Iterator[None]:
        """Trains until the round ends; yields after each step."""
        while self._has_plans():
            if not self._plans:
                continue
            flags = self._step(self._plans[0][0])
            yield
            if self._ends_with(flags):
                return

    def _step(self, plan: Plan) -> StepFlags:
        """Makes one step; returns the sums of all members' flags and metrics."""
        self._exchange_s = 0.0
        records = self._step_reader.wait_for(plan)
        self._progress.flight = plan
        with self._member.computing() if records else contextlib.nullcontext():
            flags, problem = self._compute(plan, records)
        self._finish_step(flags, problem, records)
        return flags

    def _compute(self, plan: Plan, records: StepRecords) -> tuple[StepFlags, str]:
        """Computes this member's part of the gradient; returns its flags, and the loss's problem or ""."""
        flags, problem = StepFlags(), ""
        if isinstance(records, UnreadableTask):
            flags.unreadable = 1.0
            return flags, problem
        for micro_batch in records:
            index, weight = micro_batch.index, micro_batch.size / plan.size
            metrics = self._model.backward(micro_batch.records, weight, self._micro(index))
            flags.add(metrics, weight)
            loss = float(metrics.get("loss", 0.0))
            if not math.isfinite(loss):
                flags.nan, problem = 1.0, f"loss is {loss} in micro-batch {index}"
        self._metric_names = sorted(flags.metrics) or self._metric_names
        return flags, problem

    @override
    def _sum_gradients(self, flags: StepFlags) -> None:
        """Sums the gradient, and the flags and metrics behind it, over all members."""
        size, member = self._model.size, self._member
        self._ring.check()  # if the round is over, members may still need the previous step's gradient
        member.kept_step = None
        if len(member.buffer) != size + step_flags.SIZE:
            member.buffer = np.empty(size + step_flags.SIZE, np.float32)
        if flags.unreadable or flags.nan:
            self._gradient[:] = 0
        else:
            self._model.read_gradient(self._gradient)
        if self._round.world_size == 1:
            return
        flags.write(member.buffer[size:])
        self._timed(lambda: self._sums.all_reduce(member.buffer))
        flags.read(member.buffer[size:], self._metric_names)
        if not flags.same_names:
            payloads = self._timed(lambda: self._ring.gather(encode_json(flags.metrics)))
            flags.metrics = step_flags.sum_by_name(map(json.loads, payloads))

    @property
    def _gradient(self) -> np.ndarray:
        """The sum of all members' gradients, with the same bits in all members."""
        return self._member.buffer[: self._model.size]

    @override
    def _is_finite(self) -> bool:
        return is_finite(self._gradient)

    @override
    def _gradient_problem(self) -> str:
        own = np.empty(self._model.size, np.float32)
        self._model.read_gradient(own)
        return "" if is_finite(own) else "the loss is finite, but its gradient is NaN or infinite"

    @override
    def _apply(self, scale: float) -> None:
        if self._round.world_size > 1:
            self._model.write_gradient(self._gradient)
        self._model.step(scale)
