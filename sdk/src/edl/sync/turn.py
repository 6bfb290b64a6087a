"""One round at work: members become alike, then step after step until it ends."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from edl import clock, wire
from edl.errors import Refused, RoundOver, TrainingError
from edl.exchange import Ring
from edl.heart import replaced
from edl.rendezvous import Round
from edl.sync import chunk, tail
from edl.sync.agreement import Agreement, Hello, agree, one_behind
from edl.sync.fallback import fall_back, load_newest, tell_setback
from edl.sync.options import Step
from edl.sync.reader import Reader, Unreadable
from edl.sync.replica import Micro, State
from edl.sync.shares import Plan, Span, cut, micro_size, share
from edl.sync.tail import Tail

if TYPE_CHECKING:
    from edl.sync.engine import Engine

log = logging.getLogger("edl")
T = TypeVar("T")

_WAIT_S = 0.05
_IDLE_S = 0.5
"""How long the leader waits for records before it lets the others know that it lives."""
_CLOSE_S = 1.0
_LOW = 4
"""So many planned steps before the last one more are asked for: their records are read meanwhile."""
_STAYS, _CHANGES, _LEAVES = b"0", b"1", b"2"
_MOST_LEFT_OUT = 20
"""Steps in a row: after so many the parameters themselves are no numbers."""
_SEED_STEP, _SEED_MICRO, _SEED_MOST = 1_000_003, 8_191, 1 << 31


class Turn:
    """This member's part in one round."""

    def __init__(self, engine: Engine, ring: Ring, found: Round) -> None:
        self._engine, self._ring, self._round = engine, ring, found
        self._course, self._replica, self._options = engine.course, engine.replica, engine.options
        self._plans: deque[Plan] = deque()
        self._low = 0
        """With so many plans left more are asked for; alike in all members."""
        self._reader = Reader(engine.dataset.source)
        self._buffer = np.zeros(0, np.float32)
        self._names: list[str] = []
        self._micro = micro_size(self._options.batch_size, self._options.micro_batches)
        self._exchange_s = 0.0
        self._ended_s = clock.monotonic_s()

    def close(self) -> None:
        """Ends what was begun."""
        self._reader.close(_CLOSE_S)

    # -- becoming alike ----------------------------------------------------------------------

    def begin(self) -> None:
        """All members have the same state after this, and the one of rank 0 leads."""
        course = self._course
        if self._round.world > 1 or not course.term:
            self._become_alike()
        course.flight = None
        self._names = sorted(course.metrics)
        self._commit()
        if self._leads:
            self._lead()
        else:
            self._follow()

    def _become_alike(self) -> None:
        course, name = self._course, self._round.members[self._round.rank].trainer
        mine = course.hello(name, _digest(self._replica.state()) if course.term else 0)
        told = [Hello(**json.loads(one)) for one in self._ring.gather(_raw(mine.json()))]
        found = agree(told)
        if found.fresh and self._round.rank == found.source:
            load_newest(self._engine)
        if found.needy:
            self._share(found, mine, told[found.source])
        self._ring.barrier()

    def _share(self, found: Agreement, mine: Hello, chosen: Hello) -> None:
        """From the source to those that need it, through everybody."""
        if self._round.rank == found.source:
            arrays, about = self._dumped()
            self._ring.broadcast(arrays, _raw(about), found.source)
            return
        raw, arrays = self._ring.receive(found.source)
        if self._round.rank not in found.needy:
            return
        about = json.loads(raw)
        self._load(about, arrays)
        if self._engine.leader is not None and one_behind(mine, chosen):
            self._course.advance(about["metrics"])  # its book knows more than that of the source
            self._course.place(about)
        else:
            self._engine.drop_lead()
            self._course.load(about)
        self._course.term = chosen.term
        log.info("took the state of step %d over from %s", self._course.step, chosen.trainer)

    def _lead(self) -> None:
        """Begins a term; if the state lacks acknowledged records, all go on from a checkpoint or take the loss."""
        engine, moved = self._engine, False
        if not engine.lead(self._course.term):
            found = fall_back(engine, [one.trainer for one in self._round.members])
            moved = found.moved
            if not engine.lead(found.term):
                raise RoundOver("others train on")
            tell_setback(engine, found)
        if self._round.world > 1:
            arrays, about = self._dumped() if moved else ([], {})
            self._ring.broadcast(arrays, _raw({**about, "term": self._course.term}), 0)

    def _follow(self) -> None:
        """Receives the term from the leader, and the checkpoint's state if there is one."""
        self._engine.drop_lead()
        raw, arrays = self._ring.receive(0)
        about = json.loads(raw)
        if "names" in about:
            self._load(about, arrays)
            self._course.load(about)
        self._course.term = about["term"]

    def _dumped(self) -> tuple[list[np.ndarray], wire.Json]:
        """The state and how far it is, for other members."""
        state = self._replica.state()
        about = {**self._course.dump(), "extra": state.extra, "names": list(state.arrays)}
        return [np.asarray(one, order="C") for one in state.arrays.values()], about

    def _load(self, about: wire.Json, arrays: Sequence[np.ndarray]) -> None:
        self._replica.load(State(dict(zip(about["names"], arrays)), about["extra"]))

    # -- steps -------------------------------------------------------------------------------

    def run(self) -> None:
        """Steps until all is trained, or until all members change to a later round."""
        while True:
            if len(self._plans) <= self._low and not self._ask():
                return
            self._engine.confirm()
            if self._plans and (found := self._step(self._plans[0])).switch:
                self._part(last=found.leaving >= self._round.world)
                return

    def _ask(self) -> bool:
        """Hears what comes next from the leader; whether this round goes on."""
        raw, _ = self._timed(self._ring.broadcast, [] if self._leads else None, self._say(), 0)
        heard = chunk.read(raw)
        if self._engine.leader is None:
            self._course.forget(heard.settled)
            for span in (span for plan in heard.plans for span in plan.spans):
                self._course.book.take(span.lease)
        for plan in heard.plans:
            self._plans.append(plan)
            self._reader.order(plan, self._mine(plan))
        self._low = _LOW if heard.plans else 0
        if self._plans:
            return True
        mine = _CHANGES if self._wants_change else _STAYS
        words = self._timed(self._ring.gather, _LEAVES if self._leaves else mine)
        self._commit()
        self._engine.result.whole = heard.over
        if heard.over:
            self._end()
        elif all(word == _LEAVES for word in words):
            self._last()
        return not heard.over and all(word == _STAYS for word in words)

    @property
    def _leads(self) -> bool:
        return self._round.rank == 0

    @property
    def _leaves(self) -> bool:
        return self._engine.leaving.is_set()

    @property
    def _wants_change(self) -> bool:
        return self._leaves or self._engine.rendezvous.newer(self._round.number)

    def _say(self) -> bytes:
        """What the leader tells; nothing of any other member."""
        leader = self._engine.leader
        if leader is None:
            return b""
        plans: list[Plan] = []
        wait_s = _WAIT_S if self._wants_change else _IDLE_S
        if self._plans or self._course.pending:
            wait_s = 0.0  # the next epoch may wait for the acknowledgement of that step
        world = self._round.world
        size = self._options.batch_size if self._options.constant_batch else self._micro * world
        if leader.replaced:
            raise RoundOver("another member leads by now")
        try:
            while len(plans) < chunk.STEPS:
                plan = leader.plan(size, 0.0 if plans else wait_s)
                if plan is None or not plan.spans:
                    over = plan is None and not plans
                    return chunk.write(plans, self._course.settled(), over=over)
                plans.append(plan)
        except Refused as error:
            if replaced(error):
                raise RoundOver("another member leads by now") from error
            raise
        return chunk.write(plans, self._course.settled(), over=False)

    def _mine(self, plan: Plan) -> list[tuple[int, tuple[Span, ...]]]:
        """The micro-batches that this member computes."""
        micros = cut(plan.spans, self._micro)
        return [
            (index, micros[index])
            for index in share(len(micros), self._round.rank, self._round.world)
        ]

    def _step(self, plan: Plan) -> Tail:
        """One step; what all members said with it."""
        self._exchange_s = 0.0
        read = self._reader.take(plan)
        self._course.flight = plan
        mine, why = self._compute(plan, read)
        mine.switch, mine.leaving = float(self._wants_change), float(self._leaves)
        self._exchange(mine)
        if mine.unread:
            self._leave_out(read)
        elif mine.nan:
            self._no_number(why)
        else:
            self._apply()
            self._made(mine, skipped=False)
        return mine

    def _compute(self, plan: Plan, read: object) -> tuple[Tail, str]:
        """This member's part of the gradient, and what is wrong with it."""
        mine, why = Tail(), ""
        if isinstance(read, Unreadable) or not isinstance(read, list):
            mine.unread = 1.0
            return mine, why
        step, seed = self._course.step, self._options.seed
        for piece in read:
            weight = piece.size / plan.size
            random = (seed + step * _SEED_STEP + piece.index * _SEED_MICRO) % _SEED_MOST
            found = self._replica.backward(piece.records, weight, Micro(step, piece.index, random))
            mine.add(found, weight)
            loss = float(found.get("loss", 0.0))
            if not math.isfinite(loss):
                mine.nan, why = 1.0, f"loss is {loss} in micro-batch {piece.index}"
        self._names = sorted(mine.metrics) or self._names
        return mine, why

    def _exchange(self, mine: Tail) -> None:
        """Sums gradient and tail over all members."""
        if self._round.world == 1:
            return
        size = self._replica.size
        if len(self._buffer) != size + tail.SIZE:
            self._buffer = np.empty(size + tail.SIZE, np.float32)
        if mine.unread or mine.nan:
            self._buffer[:size] = 0
        else:
            self._replica.read_gradient(self._buffer[:size])
        mine.write(self._buffer[size:])
        self._timed(self._ring.all_reduce, self._buffer)
        mine.read(self._buffer[size:], self._names)

    def _apply(self) -> None:
        world = self._round.world
        if world > 1:
            self._replica.write_gradient(self._buffer[: self._replica.size])
        constant = self._options.constant_batch
        self._replica.step(1.0 if constant else world / self._options.micro_batches)

    def _made(self, mine: Tail, *, skipped: bool) -> None:
        """The step is behind this member; the one before is behind all."""
        plan, course = self._plans.popleft(), self._course
        self._commit()
        course.advance(mine.metrics, skipped=skipped)
        now_s = clock.monotonic_s()
        seconds, self._ended_s = now_s - self._ended_s, now_s
        every = self._options.checkpoint_steps
        if every and self._leads and course.step % every == 0:
            self._engine.save()
        self._engine.tell(
            Step(
                step=course.step,
                epoch=plan.spans[0].lease.epoch,
                records=plan.size,
                metrics=mine.metrics,
                round=self._round.number,
                rank=self._round.rank,
                world=self._round.world,
                seconds=seconds,
                exchange_s=self._exchange_s,
            )
        )

    def _no_number(self, why: str) -> None:
        """A loss is NaN or infinite somewhere: every member hears where."""
        self._replica.clear()
        who = self._round.members[self._round.rank].trainer
        told = self._ring.gather(f"{who}: {why}".encode() if why else b"")
        step = self._course.step + 1
        text = f"step {step}: " + "; ".join(one.decode() for one in told if one)
        if self._options.on_nan == "fail":
            self._give_up(
                f"{text}: the job fails (on_nan=skip would leave such steps out; a smaller "
                "learning rate may avoid them)"
            )
        if self._course.in_a_row >= _MOST_LEFT_OUT:
            self._give_up(
                f"{text}: {_MOST_LEFT_OUT} steps in a row were left out before, the parameters "
                "may be no numbers any more: the job fails (go on from a checkpoint with a smaller "
                "learning rate)"
            )
        log.warning("%s: the step is left out", text)
        self._made(Tail(metrics={}), skipped=True)

    def _give_up(self, text: str) -> NoReturn:
        """The job fails, for all members alike."""
        if self._leads:
            self._engine.fail(text)
        raise TrainingError(text)

    def _leave_out(self, read: object) -> None:
        """Some member cannot read its records: their tasks fail, everywhere alike."""
        self._replica.clear()
        problem: wire.Json = {}
        if isinstance(read, Unreadable):
            problem = {"task": read.lease.task, "why": read.why, "record": read.record}
        told = [json.loads(one) for one in self._ring.gather(_raw(problem))]
        leases = {lease.task: lease for lease, _ in self._course.book.leases()}
        for one in told:
            if one and one["task"] in leases:
                log.warning("task %s failed: %s", one["task"], one["why"])
                self._course.book.fail(leases[one["task"]], one["why"], one["record"])
        self._commit()
        self._course.flight = None
        self._plans.clear()
        self._reader.close(_CLOSE_S)
        self._reader = Reader(self._engine.dataset.source)
        if self._engine.leader is not None:
            self._engine.leader.rewind()
            self._engine.leader.told()

    def _part(self, *, last: bool) -> None:
        """All change to a later round: once everybody has made the step, it counts."""
        self._timed(self._ring.barrier)
        self._commit()
        if last:
            self._last()

    def _end(self) -> None:
        """All data is trained: nobody goes on to something else while another is still here."""
        self._last()
        self._engine.part()
        with contextlib.suppress(RoundOver):
            self._ring.barrier()

    def _last(self) -> None:
        """Nobody trains after this: what only the members have is kept."""
        if self._leads:
            self._engine.last = True
            self._engine.save(wait=True)

    def _commit(self) -> None:
        if self._course.commit() and self._engine.leader is not None:
            self._engine.leader.told()

    def _timed(self, act: Callable[..., T], *args: Any) -> T:
        """Does it, and counts its time as exchange."""
        began_s = clock.monotonic_s()
        try:
            return act(*args)
        finally:
            self._exchange_s += clock.monotonic_s() - began_s


def _digest(state: State) -> int:
    """Of everything in a state."""
    found = zlib.crc32(json.dumps(state.extra, sort_keys=True).encode())
    for name in sorted(state.arrays):
        flat = np.ascontiguousarray(state.arrays[name]).reshape(-1)
        found = zlib.crc32(flat.view(np.uint8).data, found)
    return found


def _raw(body: wire.Json) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
