"""One round of training: how it starts, plans and completes steps, and ends."""

from __future__ import annotations

import contextlib
import json
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from edl import clock
from edl.errors import Refused, RoundOver, TrainingError
from edl.master import protocol
from edl.master.heartbeat import is_replaced
from edl.master.protocol import Round
from edl.sync import plan_message
from edl.sync.data_position import RENEWED_AT
from edl.sync.group_member import GroupMember, KeptStep
from edl.sync.growth import Growth
from edl.sync.link import Link
from edl.sync.options import SyncStep
from edl.sync.plans import Assignment, Plan, assigned_indices, micro_size, split
from edl.sync.replica import Micro
from edl.sync.round_start import RoundStart, encode_json
from edl.sync.step_flags import StepFlags
from edl.sync.step_policy import StepPolicy
from edl.sync.step_reader import UnreadableTask

log = logging.getLogger("edl")
T = TypeVar("T")

_WAIT_S = 0.05
_IDLE_S = 0.5
"""How long the leader waits for records before it sends an empty plan message, which shows that it
is alive."""
_CLOSE_S = 1.0
_STAYS, _CHANGES, _LEAVES, _LACKS = b"0", b"1", b"2", b"3"
_MAX_SKIPPED = 20
"""After this many consecutive skipped steps, the parameters themselves are probably not finite."""
_SEED_STEP, _SEED_MICRO, _SEED_MODULUS = 1_000_003, 8_191, 1 << 31


class PlanReader(Protocol):
    """Reads a member's part of each planned step."""

    def request(self, plan: Plan, micro_batches: Assignment) -> None:
        """Requests micro-batches of a step; they are read after all earlier requests."""
        ...

    def close(self, join_s: float) -> None:
        """Ends the reader and drops all requests."""
        ...


class GroupRound(ABC):
    """One member's part in one round; subclasses compute and sum gradients."""

    keeps_gradient = True
    """Whether the member's buffer holds the gradient of the newest step, for members that lack the step."""

    def __init__(
        self,
        member: GroupMember,
        ring: Link,
        round_: Round,
        *,
        growth: Growth,
        policy: StepPolicy,
    ) -> None:
        self._member, self._ring, self._round = member, ring, round_
        self._growth, self._policy = growth, policy
        self._progress, self._replica = member.progress, member.replica
        self._options = member.options
        self._plans: deque[tuple[Plan, int]] = deque()
        """The next steps, each with the number of members that compute it."""
        self._min_plans = 0
        """Members request plans when this many are left; the same number in all members."""
        self._reader = self._new_reader()
        self._metric_names: list[str] = []
        self._micro_size = micro_size(self._options.batch_size, self._options.micro_batches)
        self._exchange_s = 0.0
        self._ended_s = clock.monotonic_s()

    @abstractmethod
    def _new_reader(self) -> PlanReader:
        """Returns a new reader without requests."""

    @abstractmethod
    def steps(self) -> Iterator[Any]:
        """Trains until all data is trained, or until all members change to a later round."""

    @abstractmethod
    def _sum_gradients(self, flags: StepFlags) -> None:
        """Sums the gradient, and the flags and metrics with it, over all members."""

    @abstractmethod
    def _is_finite(self) -> bool:
        """Returns whether the sum of all gradients is finite; the same in all members."""

    @abstractmethod
    def _gradient_problem(self) -> str:
        """Returns the problem with this member's gradient, or ""; called if the sum is not finite."""

    @abstractmethod
    def _apply(self, scale: float) -> None:
        """Applies the sum of all gradients, with the learning rate times `scale`."""

    def drop_gradient(self) -> None:
        """Drops the current step's gradient; the step is made again because members are lost."""
        self._replica.clear()

    def close(self) -> None:
        """Ends this member's threads of the round."""
        self._reader.close(_CLOSE_S)
        self._growth.close(is_leaving=self._is_leaving)

    # -- the start of a round ----------------------------------------------------------------

    def begin(self) -> None:
        """Brings all members to the same state, and makes the member of rank 0 the leader."""
        start = RoundStart(self._member, self._ring, self._round, self._growth)
        start.synchronize_state()
        self._metric_names = sorted(self._progress.metrics)
        start.begin_term()

    def _has_plans(self) -> bool:
        """Receives more plans from the leader if few are left; returns whether this round continues."""
        if len(self._plans) <= self._min_plans and not self._receive_plans():
            return False
        self._member.confirm_leadership()
        return True

    def _ends_with(self, flags: StepFlags) -> bool:
        """Ends the round if a member has to change to a later one; returns whether this round ended."""
        if flags.switch:
            are_left = (
                self._round.world_size - flags.lacking
            )  # newcomers do not count: they lack the state
            self._finish_round(last=flags.leaving >= are_left)
        return bool(flags.switch)

    def _receive_plans(self) -> bool:
        """Receives the leader's next plans; returns whether this round continues."""
        arrays: list[np.ndarray] | None = [] if self._is_leader else None
        plans = self._next_plans()
        raw, _ = self._timed(lambda: self._ring.broadcast(arrays, plans, 0))
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
        self._min_plans = self._policy.min_plans if message.plans else 0
        if self._plans:
            return True
        staying = _CHANGES if self._wants_new_round else _STAYS
        staying = staying if self._growth.is_complete else _LACKS
        intent = _LEAVES if self._is_leaving else staying
        intents = self._timed(lambda: self._ring.gather(intent))
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
        """Returns the leader's next plan message; b"" in the other members."""
        leader = self._member.leader
        if leader is None:
            return b""
        plans: list[Plan] = []
        wait_s = _WAIT_S if self._wants_new_round else _IDLE_S
        if self._plans or self._progress.pending:
            wait_s = 0.0  # the next epoch may not begin before the pending step is reported
        size = self._policy.records(self._growth.workers)
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

    def _finish_step(self, flags: StepFlags, problem: str, records: object) -> None:
        """Sums the gradients of all members, and applies the sum or skips the step.

        Args:
            flags: This member's flags; after the call, the sums of all members' flags.
            problem: The problem with this member's loss, or "".
            records: The records of the step, or an `UnreadableTask`.
        """
        flags.switch, flags.leaving = float(self._wants_new_round), float(self._is_leaving)
        self._exchange(flags)
        if flags.unreadable:
            self._fail_unreadable_tasks(records)
        elif flags.nan:
            self._skip_or_fail(problem)
        elif not self._is_finite():
            self._skip_or_fail(self._gradient_problem())
        else:
            if self._growth.applies:
                self._apply(self._policy.scale(self._plans[0][1]))
            self._complete_step(flags, skipped=False)

    def _exchange(self, flags: StepFlags) -> None:
        """Sums gradients and flags; newcomers receive the next parts of the state."""
        self._growth.write_flags(flags)
        self._sum_gradients(flags)
        self._growth.read_flags(flags)

    def _micro(self, index: int) -> Micro:
        """Returns the identity of a micro-batch of the next step."""
        return micro_of(self._options.seed, self._progress.step, index)

    def _complete_step(self, flags: StepFlags, *, skipped: bool) -> None:
        """Records that this member has made the step, and that all members have made the previous one."""
        (plan, workers), progress = self._plans.popleft(), self._progress
        self._member.commit()
        before = progress.lineage
        progress.advance(flags.metrics, round_number=self._round.number, skipped=skipped)
        if self.keeps_gradient and not skipped and self._round.world_size > 1:
            self._member.kept_step = KeptStep(progress.lineage, before, self._policy.scale(workers))
        now_s = clock.monotonic_s()
        seconds, self._ended_s = now_s - self._ended_s, now_s
        interval = self._options.checkpoint_steps
        if interval and progress.step % interval == 0:
            self._save()
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
        """Fails the job or skips the step, because a loss or the gradient was NaN or infinite."""
        self._replica.clear()
        trainer = self._round.members[self._round.rank].trainer
        payloads = self._ring.gather(f"{trainer}: {problem}".encode() if problem else b"")
        step = self._progress.step + 1
        problems = [payload.decode() for payload in payloads if payload]
        text = f"step {step}: " + ("; ".join(problems) or "the sum of all gradients is infinite")
        if self._options.on_nan == "fail":
            self._fail_job(
                f"{text}: the job fails (on_nan=skip would skip such steps; a smaller "
                "learning rate may avoid them)"
            )
        if self._progress.skipped_in_a_row >= _MAX_SKIPPED:
            self._fail_job(
                f"{text}: {_MAX_SKIPPED} consecutive steps were skipped before, the parameters "
                "may no longer be finite: the job fails (continue from a checkpoint with a smaller "
                "learning rate)"
            )
        log.warning("%s: the step is skipped", text)
        self._complete_step(StepFlags(metrics={}), skipped=True)

    def _fail_job(self, text: str) -> NoReturn:
        """Fails the job: every member raises, and the leader reports the failure to the master."""
        if self._is_leader:
            self._member.fail_job(text)
        raise TrainingError(text)

    def _fail_unreadable_tasks(self, records: object) -> None:
        """Fails the tasks that a member could not read, in the lease tables of all members."""
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
        self._reader = self._new_reader()
        if self._member.leader is not None:
            self._member.leader.rewind()
            self._member.leader.report_ready()

    def _finish_round(self, *, last: bool) -> None:
        """Ends the round after a step: waits until all members have made the step, and records it."""
        self._timed(self._ring.barrier)
        self._member.commit()
        if last:
            self._save_last()

    def _finish_training(self) -> None:
        """Ends the training after the last step; returns once all members have reached this point."""
        self._save_last()
        if not self._growth.is_complete:
            self._member.mark_late()
        self._member.leave_rendezvous()
        with contextlib.suppress(RoundOver):
            self._ring.barrier()

    def _save_last(self) -> None:
        """Saves the state when no member continues to train."""
        if self._is_leader:
            self._member.is_last = True
        self._save(wait=True)

    def _save(self, *, wait: bool = False) -> None:
        self._member.save_checkpoint(self._round.rank, self._growth.workers, wait=wait)

    def _timed(self, call: Callable[[], T]) -> T:
        """Calls a function and adds its duration to the step's time in collective calls."""
        began_s = clock.monotonic_s()
        try:
            return call()
        finally:
            self._exchange_s += clock.monotonic_s() - began_s


def micro_of(seed: int, step: int, index: int) -> Micro:
    """Returns the identity of a micro-batch of a step, in a job with this seed."""
    own_seed = seed + step * _SEED_STEP + index * _SEED_MICRO
    return Micro(step, index, own_seed % _SEED_MODULUS)
