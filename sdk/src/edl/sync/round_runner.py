"""One round: brings all members to the same state, then trains step after step until it ends."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np

from edl import clock
from edl.collective import Ring
from edl.errors import Refused, RoundOver, TrainingError
from edl.master import protocol
from edl.master.heartbeat import is_replaced
from edl.master.protocol import Round
from edl.sync import plan_message, step_flags
from edl.sync.data_position import RENEWED_AT
from edl.sync.group_member import GroupMember, KeptStep
from edl.sync.growth import Growth, Streams
from edl.sync.options import SyncStep
from edl.sync.plans import Assignment, Plan, assigned_indices, micro_size, split
from edl.sync.replica import Micro
from edl.sync.round_start import RoundStart, encode_json
from edl.sync.step_flags import StepFlags, is_finite
from edl.sync.step_reader import StepReader, UnreadableTask

log = logging.getLogger("edl")
T = TypeVar("T")

_WAIT_S = 0.05
_IDLE_S = 0.5
"""How long the leader waits for records before it sends an empty plan message as a sign of life."""
_CLOSE_S = 1.0
_MIN_PLANS = 4
"""Plans are requested when this many are left: their records are read meanwhile."""
_STAYS, _CHANGES, _LEAVES, _LACKS = b"0", b"1", b"2", b"3"
_MAX_SKIPPED = 20
"""Steps in a row: after that many the parameters themselves are probably not finite."""
_SEED_STEP, _SEED_MICRO, _SEED_MODULUS = 1_000_003, 8_191, 1 << 31


class RoundRunner:
    """One member's part in one round: synchronizes the state, then trains until the round ends."""

    def __init__(self, member: GroupMember, ring: Ring, round_: Round, streams: Streams) -> None:
        self._member, self._ring, self._round = member, ring, round_
        self._growth = Growth(member, ring, round_, streams)
        self._progress, self._replica = member.progress, member.replica
        self._options = member.options
        self._plans: deque[tuple[Plan, int]] = deque()
        """The next steps, and how many members compute each."""
        self._min_plans = 0
        """Plans are requested when this many are left; the same in all members."""
        self._reader = StepReader(member.leased_records())
        self._metric_names: list[str] = []
        self._micro_size = micro_size(self._options.batch_size, self._options.micro_batches)
        self._exchange_s = 0.0
        self._ended_s = clock.monotonic_s()

    def close(self) -> None:
        """Ends this member's threads of the round."""
        self._reader.close(_CLOSE_S)
        self._growth.close()

    # -- the start of a round ----------------------------------------------------------------

    def begin(self) -> None:
        """Brings all members to the same state, and makes the member of rank 0 the leader."""
        start = RoundStart(self._member, self._ring, self._round, self._growth)
        start.synchronize_state()
        self._metric_names = sorted(self._progress.metrics)
        start.begin_term()

    # -- steps -------------------------------------------------------------------------------

    def run(self) -> None:
        """Trains until all data is trained, or until all members change to a later round."""
        while True:
            if len(self._plans) <= self._min_plans and not self._receive_plans():
                return
            self._member.confirm_leadership()
            if self._plans and (flags := self._step(*self._plans[0])).switch:
                are_left = (
                    self._round.world_size - flags.lacking
                )  # who lacks the state cannot go on
                self._finish_round(last=flags.leaving >= are_left)
                return

    def _receive_plans(self) -> bool:
        """Receives the leader's next plans; returns whether this round continues."""
        arrays: list[np.ndarray] | None = [] if self._is_leader else None
        raw, _ = self._timed(self._ring.broadcast, arrays, self._next_plans(), 0)
        message = plan_message.decode(raw)
        if self._member.leader is None:
            self._progress.settle(message.settled)
            for span in (span for plan in message.plans for span in plan.spans):
                self._progress.lease_table.add(span.lease)
        for plan in message.plans:
            self._plans.append((plan, self._growth.workers))
            self._reader.request(plan, self._assigned(plan))
        if message.data is not None and self._member.leader is None:
            self._progress.data.load(message.data)
        self._min_plans = _MIN_PLANS if message.plans else 0
        if self._plans:
            return True
        staying = _CHANGES if self._wants_new_round else _STAYS
        staying = staying if self._growth.is_complete else _LACKS
        intents = self._timed(self._ring.gather, _LEAVES if self._is_leaving else staying)
        self._member.commit()
        self._member.result.whole = message.over
        if message.over:
            self._finish_training()
        elif all(intent in (_LEAVES, _LACKS) for intent in intents):
            self._save_last()
        return not message.over and all(intent in (_STAYS, _LACKS) for intent in intents)

    @property
    def _is_leader(self) -> bool:
        return self._round.rank == 0

    @property
    def _is_leaving(self) -> bool:
        return self._member.leaving.is_set()

    @property
    def _wants_new_round(self) -> bool:
        is_due = self._member.rendezvous.newer(self._round.number)
        return self._is_leaving or (is_due and not self._growth.holds_round)

    def _next_plans(self) -> bytes:
        """Returns the leader's next plan message; nothing in any other member."""
        leader = self._member.leader
        if leader is None:
            return b""
        plans: list[Plan] = []
        wait_s = _WAIT_S if self._wants_new_round else _IDLE_S
        if self._plans or self._progress.pending:
            wait_s = 0.0  # the next epoch may wait for the acknowledgement of that step
        constant = self._options.constant_batch
        size = self._options.batch_size if constant else self._micro_size * self._growth.workers
        if leader.replaced:
            raise RoundOver("another member leads by now")
        data = self._progress.data.dump() if self._member.renew_position(at=RENEWED_AT) else None
        try:
            while len(plans) < plan_message.STEPS:
                plan = leader.plan(size, 0.0 if plans else wait_s)
                if plan is None or not plan.spans:
                    over = plan is None and not plans
                    settled = self._progress.newly_settled()
                    return plan_message.encode(plans, settled, over=over, data=data)
                plans.append(plan)
        except Refused as error:
            if is_replaced(error):
                raise RoundOver("another member leads by now") from error
            raise
        return plan_message.encode(plans, self._progress.newly_settled(), over=False, data=data)

    def _assigned(self, plan: Plan) -> Assignment:
        """Returns the micro-batches that this member computes."""
        micro_batches = split(plan.spans, self._micro_size)
        workers = self._growth.workers
        if self._round.rank >= workers:
            return []
        indices = assigned_indices(len(micro_batches), self._round.rank, workers)
        return [(index, micro_batches[index]) for index in indices]

    def _step(self, plan: Plan, workers: int) -> StepFlags:
        """Does one step; returns the sums of all members' flags and metrics."""
        self._exchange_s = 0.0
        records = self._reader.wait_for(plan)
        self._progress.flight = plan
        with self._member.computing() if records else contextlib.nullcontext():
            flags, problem = self._compute(plan, records)
        flags.switch, flags.leaving = float(self._wants_new_round), float(self._is_leaving)
        self._growth.write_flags(flags)
        self._sum_gradients(flags)
        self._growth.read_flags(flags)
        if flags.unreadable:
            self._fail_unreadable_tasks(records)
        elif flags.nan:
            self._skip_or_fail(problem)
        elif not is_finite(self._gradient):
            self._skip_or_fail(self._gradient_problem())
        else:
            self._apply(self._scale(workers))
            self._complete_step(flags, skipped=False)
        return flags

    def _compute(self, plan: Plan, records: object) -> tuple[StepFlags, str]:
        """Computes this member's part of the gradient; returns its flags and what is wrong."""
        flags, problem = StepFlags(), ""
        if isinstance(records, UnreadableTask) or not isinstance(records, list):
            flags.unreadable = 1.0
            return flags, problem
        step, seed = self._progress.step, self._options.seed
        for micro_batch in records:
            index, weight = micro_batch.index, micro_batch.size / plan.size
            micro_seed = (seed + step * _SEED_STEP + index * _SEED_MICRO) % _SEED_MODULUS
            micro = Micro(step, index, micro_seed)
            metrics = self._replica.backward(micro_batch.records, weight, micro)
            flags.add(metrics, weight)
            loss = float(metrics.get("loss", 0.0))
            if not math.isfinite(loss):
                flags.nan, problem = 1.0, f"loss is {loss} in micro-batch {index}"
        self._metric_names = sorted(flags.metrics) or self._metric_names
        return flags, problem

    def _sum_gradients(self, flags: StepFlags) -> None:
        """Sums the gradient, and the flags and metrics behind it, over all members."""
        size, member = self._replica.size, self._member
        self._ring.check()  # the gradient of the step before may be needed for a member that lacks it
        member.kept_step = None
        if len(member.buffer) != size + step_flags.SIZE:
            member.buffer = np.empty(size + step_flags.SIZE, np.float32)
        if flags.unreadable or flags.nan:
            self._gradient[:] = 0
        else:
            self._replica.read_gradient(self._gradient)
        if self._round.world_size == 1:
            return
        flags.write(member.buffer[size:])
        self._timed(self._ring.all_reduce, member.buffer)
        flags.read(member.buffer[size:], self._metric_names)
        if not flags.same_names:
            payloads = self._timed(self._ring.gather, encode_json(flags.metrics))
            flags.metrics = step_flags.sum_by_name(map(json.loads, payloads))

    @property
    def _gradient(self) -> np.ndarray:
        """The sum of all members' gradients, the same bits in all of them."""
        return self._member.buffer[: self._replica.size]

    def _gradient_problem(self) -> str:
        """Returns what is wrong with this member's own gradient, where their sum is not finite."""
        own = np.empty(self._replica.size, np.float32)
        self._replica.read_gradient(own)
        return "" if is_finite(own) else "the loss is finite, but its gradient is NaN or infinite"

    def _apply(self, scale: float) -> None:
        if not self._growth.applies:
            return
        if self._round.world_size > 1:
            self._replica.write_gradient(self._gradient)
        self._replica.step(scale)

    def _scale(self, workers: int) -> float:
        """What the learning rate of a step that so many members compute is multiplied by."""
        return 1.0 if self._options.constant_batch else workers / self._options.micro_batches

    def _complete_step(self, flags: StepFlags, *, skipped: bool) -> None:
        """Records that this member has made the step, and that all have made the one before."""
        (plan, workers), progress = self._plans.popleft(), self._progress
        self._member.commit()
        before = progress.lineage
        progress.advance(flags.metrics, round_number=self._round.number, skipped=skipped)
        if not skipped and self._round.world_size > 1:
            self._member.kept_step = KeptStep(progress.lineage, before, self._scale(workers))
        now_s = clock.monotonic_s()
        seconds, self._ended_s = now_s - self._ended_s, now_s
        interval = self._options.checkpoint_steps
        if interval and self._is_leader and progress.step % interval == 0:
            self._member.save_checkpoint()
        if not self._growth.is_complete:
            return
        self._member.report_step(
            SyncStep(
                step=progress.step,
                epoch=plan.spans[0].lease.epoch,
                records=plan.size,
                metrics=flags.metrics,
                round=self._round.number,
                rank=self._round.rank,
                world_size=self._round.world_size,
                seconds=seconds,
                exchange_s=self._exchange_s,
            )
        )

    def _skip_or_fail(self, problem: str) -> None:
        """Fails the job or skips the step, after a loss or the gradient was NaN or infinite."""
        self._replica.clear()
        trainer = self._round.members[self._round.rank].trainer
        payloads = self._ring.gather(f"{trainer}: {problem}".encode() if problem else b"")
        step = self._progress.step + 1
        problems = [payload.decode() for payload in payloads if payload]
        text = f"step {step}: " + ("; ".join(problems) or "the sum of all gradients is infinite")
        if self._options.on_nan == "fail":
            self._fail_job(
                f"{text}: the job fails (on_nan=skip would leave such steps out; a smaller "
                "learning rate may avoid them)"
            )
        if self._progress.skipped_in_a_row >= _MAX_SKIPPED:
            self._fail_job(
                f"{text}: {_MAX_SKIPPED} steps in a row were left out before, the parameters "
                "may no longer be finite: the job fails (continue from a checkpoint with a smaller "
                "learning rate)"
            )
        log.warning("%s: the step is left out", text)
        self._complete_step(StepFlags(metrics={}), skipped=True)

    def _fail_job(self, text: str) -> NoReturn:
        """Fails the job: every member raises, the leader reports it to the master."""
        if self._is_leader:
            self._member.fail_job(text)
        raise TrainingError(text)

    def _fail_unreadable_tasks(self, records: object) -> None:
        """Fails, in all members' lease tables, the tasks that some member could not read."""
        self._replica.clear()
        problem: protocol.Json = {}
        if isinstance(records, UnreadableTask):
            lease, reason = records.lease, records.reason
            problem = {"task": lease.task, "why": reason, "record": records.record}
            if records.transient:
                problem["transient"] = True
        lease_table = self._progress.lease_table
        failures = [json.loads(payload) for payload in self._ring.gather(encode_json(problem))]
        leases = {lease.task: lease for lease, _ in lease_table.leases()}
        for failure in failures:
            if failure and failure["task"] in leases:
                log.warning("task %s failed: %s", failure["task"], failure["why"])
                lease_table.fail(
                    leases[failure["task"]],
                    failure["why"],
                    failure["record"],
                    transient=failure.get("transient") is True,
                )
        self._member.commit()
        self._progress.flight = None
        self._plans.clear()
        self._reader.close(_CLOSE_S)
        self._reader = StepReader(self._member.leased_records())
        if self._member.leader is not None:
            self._member.leader.rewind()
            self._member.leader.report_ready()

    def _finish_round(self, *, last: bool) -> None:
        """Ends the round after a step: the step counts once all members have made it."""
        self._timed(self._ring.barrier)
        self._member.commit()
        if last:
            self._save_last()

    def _finish_training(self) -> None:
        """Ends the training of all data; returns when all members have reached this point."""
        self._save_last()
        if not self._growth.is_complete:
            self._member.mark_late()
        self._member.leave_rendezvous()
        with contextlib.suppress(RoundOver):
            self._ring.barrier()

    def _save_last(self) -> None:
        """Saves the state when no member trains any further."""
        if self._is_leader:
            self._member.is_last = True
            self._member.save_checkpoint(wait=True)

    def _timed(self, call: Callable[..., T], *args: Any) -> T:
        """Calls a function and adds its time to the step's time in collective calls."""
        began_s = clock.monotonic_s()
        try:
            return call(*args)
        finally:
            self._exchange_s += clock.monotonic_s() - began_s
