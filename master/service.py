"""One job's master at work: calls in, durable answers out. The seam between HTTP and the books.

Everything here runs in one asyncio loop; only writes to disk and to the cluster run in threads.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from master import status
from master.books import Books
from master.errors import FencedError, JournalError, RefusedError
from master.fence import Fence
from master.ledger import ACCEPTED, Ledger
from master.liveness import Liveness
from master.meetings import Meetings
from master.rendezvous import STUCK_S, Rendezvous
from runtime.logs import keys

Json = dict[str, Any]
P = ParamSpec("P")
log = logging.getLogger(__name__)

FENCED = 3
"""Exit code of a master that was replaced."""
SETTLE_HEARTBEATS = 3
"""How long a new master waits for the trainers of the one before."""
_TICK_S = 0.25
_SNAPSHOT_S = 1.0
_LEAST_PAUSE_S = 0.05
_COVER_S = 2.0
"""How long a last word may wait for a snapshot."""
_MOST_BACKOFF_S = 10.0
AGAIN_S = 0.2


class UnavailableError(Exception):
    """The answer may differ next time: the disk is full, or this master is about to stop."""


@dataclass(slots=True, eq=False)
class _Waiter:
    trainer: str
    scope: Json
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class Service:
    """Serves one job."""

    def __init__(
        self,
        books: Books,
        heartbeat_s: float,
        clock_s: Callable[[], float],
        fence: Fence | None = None,
        *,
        stuck_s: float = STUCK_S,
    ) -> None:
        """Takes over books that were read, and nothing else yet.

        Args:
            books: Of the job.
            heartbeat_s: How often trainers are to be heard.
            clock_s: A clock that never goes back.
            fence: Where snapshots go; without one the journal is all there is.
            stuck_s: How long a member of a synchronous job may let the others wait.
        """
        self._books = books
        self._fence = fence
        self._clock_s = clock_s
        self.liveness = Liveness(heartbeat_s)
        self.liveness.anew([one.name for one in books.ledger.members], clock_s())
        self._settled_at_s = clock_s() + SETTLE_HEARTBEATS * heartbeat_s
        rendezvous = Rendezvous(clock_s(), settles=not books.is_new, stuck_s=stuck_s)
        self.meetings = Meetings(rendezvous, clock_s)
        """Who trains together; not in the books."""
        self._waiters: set[_Waiter] = set()
        self._unwritten: list[asyncio.Future[None]] = []
        self._write = asyncio.Event()
        self._changed = asyncio.Event()
        """Something is in the books that no snapshot has."""
        self._urgent = asyncio.Event()
        """Somebody waits for the next snapshot."""
        self._kept = asyncio.Event()
        """Set for a moment whenever a snapshot was stored."""
        self._version, self._kept_version = 0, 0
        """How often the books have changed, and how often they had when they were last stored."""
        self._safe: dict[tuple[str, str], int] = {}
        """Trainer and incarnation -> call that the newest snapshot covers. Another process of the
        same name counts its calls from 1: what was safe of the one before says nothing of it."""
        self.fatal: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set when this master must end; the text says why."""
        self.exit_code = 1
        """Of the process, once `fatal` is set."""
        self.counts = status.Counts()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def covered(self) -> bool:
        """Whether a snapshot holds everything that was answered."""
        calls = _calls(self.ledger)
        return not self._changed.is_set() and self._safe == calls

    @property
    def ledger(self) -> Ledger:
        """The books as they are now."""
        return self._books.ledger

    async def start(self) -> None:
        """Starts writing, keeping and looking after time."""
        loops = [self._write_on(), self._tick_on(), self.meetings.run()]
        if self._fence is not None:
            loops.append(self._keep_on(self._fence))
        self._tasks = [asyncio.create_task(one) for one in loops]
        for task in self._tasks:
            task.add_done_callback(self._loop_ended)

    async def stop(self) -> None:
        """Ends all loops; keeps a last snapshot where there is a place for one."""
        await self.halt()
        if self._fence is not None and self._changed.is_set() and not self.fatal.done():
            with contextlib.suppress(JournalError, FencedError):
                await self._keep(self._fence)

    async def halt(self) -> None:
        """Ends all loops and nothing else; what was answered is in the journal."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for waiter in self._waiters:
            waiter.woken.set()
        self.meetings.end()

    # -- calls -------------------------------------------------------------------------------

    async def join(self, body: Json) -> Json:
        """See the protocol."""
        name = body["trainer"]
        answer = self._execute({"do": "join", "trained": self.liveness.trained(name), **body})
        self.liveness.forget(name)
        self.liveness.heard(name, self._clock_s())
        if body.get("lead") is not None:
            self._urgent.set()
        await self._durable()
        return {
            "job": self.ledger.job,
            "heartbeat_s": self.liveness.heartbeat_s,
            "generation": self.ledger.generation,
            **answer,
        }

    async def term(self, body: Json) -> Json:
        """See the protocol."""
        answer = self._execute({"do": "term", **body})
        self._urgent.set()  # a master elsewhere must not take an older model for the newest
        await self._durable()
        return answer

    async def describe(self, name: str, shape: Json) -> Json:
        """See the protocol."""
        answer = self._execute({"do": "describe", "name": name, "shape": shape})
        await self._durable()
        return answer

    async def work(self, body: Json) -> Json:
        """See the protocol: acknowledges and leases, and waits where that may help."""
        body = dict(body)
        wait_s = body.pop("wait_s", 0.0)
        self._note_failed(body)
        answer = self._work({"do": "work", **body})
        if answer["state"] == "wait" and not answer["results"] and body.get("want") and wait_s > 0:
            scope = {name: body.get(name) for name in ("kinds", "datasets")}
            if await self._wait(body["trainer"], scope, wait_s):
                more = {name: body[name] for name in _MORE if name in body}
                answer = self._work({"do": "more", "results": [], **more})
        await self._durable()
        if answer["state"] in ("done", "stop"):
            await self._covered()
        return self._dressed(body["trainer"], answer)

    async def heartbeat(self, body: Json) -> Json:
        """See the protocol. Not in the journal, but for tasks that must go to somebody else."""
        name, held = body["trainer"], body["held"]
        booked = self.ledger.known(body).held
        leaked = self.liveness.beat(name, held, self._clock_s(), booked)
        if leaked:
            log.warning(
                "trainer knows nothing of its tasks", extra=keys(trainer=name, tasks=leaked)
            )
            self._execute({"do": "expire", "leaked": {name: leaked}})
            await self._durable()
        ledger = self.ledger
        lost = [o["task"] for o in held if not ledger.holder(o["task"], o["attempt"], name)]
        return {"lost": lost, "state": ledger.word(), "generation": ledger.generation}

    async def leave(self, body: Json) -> Json:
        """See the protocol."""
        name = body["trainer"]
        trained = self.liveness.trained(name)
        trained |= {one["task"]: one["trained"] for one in body.pop("back") if one["trained"]}
        answer = self._execute({"do": "leave", "trained": trained, **body})
        self.liveness.forget(name)
        await self._durable()
        await self._covered()
        return answer

    async def save(self, body: Json) -> Json:
        """See the protocol."""
        answer = self._execute({"do": "save", **body})
        await self._durable()
        return answer if answer["granted"] else {**answer, "again_s": AGAIN_S}

    async def saved(self, ticket: str, body: Json) -> Json:
        """See the protocol."""
        answer = self._execute({"do": "saved", "ticket": ticket, **body})
        await self._durable()
        return answer

    async def fail(self, body: Json) -> Json:
        """See the protocol."""
        answer = self._execute({"do": "fail", **body})
        log.error("a trainer ends the job", extra=keys(**body))
        await self._durable()
        await self._covered()
        return answer

    async def setback(self, body: Json) -> Json:
        """See the protocol."""
        answer = self._execute({"do": "setback", **body})
        log.warning("work was lost with the model's state", extra=keys(**body))
        await self._durable()
        return answer

    async def evaluate(self, body: Json) -> Json:
        """See the protocol."""
        answer = self._execute({"do": "evaluate", **body})
        await self._durable()
        return answer

    def evaluation(self, model_version: int) -> Json:
        """What is known of a model version.

        Raises:
            RefusedError: Nobody asked for it.
        """
        rounds = [
            {"dataset": one.name, **each.told()}
            for one in self.ledger.datasets.values()
            for each in one.rounds
            if each.model_version == model_version
        ]
        if not rounds:
            raise RefusedError(
                404, f"nobody asked for an evaluation of version {model_version}", "model_version"
            )
        return {"model_version": model_version, "rounds": rounds}

    def status(self) -> Json:
        """The whole job, for people and for the reconciler."""
        meeting = self.meetings.report()
        return status.report(self.ledger, self.liveness, self.counts, meeting, self._clock_s())

    # -- inside ------------------------------------------------------------------------------

    def _work(self, command: Json) -> Json:
        name, now_s = command["trainer"], self._clock_s()
        before = self.ledger.members.find(name)
        had_none = before is None or not before.held
        answer = self._execute(command)
        done = command.get("done", ())
        accepted = [
            e["task"] for e, r in zip(done, answer["results"], strict=False) if r == ACCEPTED
        ]
        self.counts.acknowledged += len(accepted)
        self.counts.stale += sum(result != ACCEPTED for result in answer["results"])
        self.counts.leased += len(answer["tasks"])
        self.liveness.acknowledged(name, accepted, now_s)
        if answer["tasks"]:
            self.liveness.leased(name, now_s, had_none=had_none)
        return answer

    def _execute(self, command: Json) -> Json:
        if self.fatal.done():
            raise UnavailableError(self.fatal.result())
        answer = self._books.execute(command)
        if self._books.waiting:
            self._version += 1
            self._changed.set()
        for waiter in self._waiters:
            if self.ledger.has_for(waiter.scope):
                waiter.woken.set()
        return answer

    async def _wait(self, trainer: str, scope: Json, wait_s: float) -> bool:
        """Whether there was something for a call before its time was over."""
        waiter = _Waiter(trainer, scope)
        self._waiters.add(waiter)
        try:
            await asyncio.wait_for(waiter.woken.wait(), wait_s)
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    def _dressed(self, trainer: str, answer: Json) -> Json:
        """An answer with what is true only now."""
        found = self.ledger.members.find(trainer)
        newest = 0 if found is None else found.call
        who = (trainer, "" if found is None else found.incarnation)
        lease_s = self.liveness.lease_s
        return {
            **answer,
            "tasks": [{**task, "lease_s": lease_s} for task in answer["tasks"]],
            "generation": self.ledger.generation,
            "safe": newest if self._fence is None else self._safe.get(who, 0),
            **({} if answer["tasks"] else {"again_s": AGAIN_S}),
        }

    def _note_failed(self, body: Json) -> None:
        for entry in body.get("failed", ()):
            log.warning(
                "task failed",
                extra=keys(task=entry["task"], trainer=body["trainer"], error=entry["error"]),
            )

    async def _durable(self) -> None:
        """Returns when everything executed so far is on the disk."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unwritten.append(written)
        self._write.set()
        await written

    async def _covered(self) -> None:
        """Waits for a snapshot, for a moment: whoever asks may not be there to tell again."""
        if self._fence is None:
            return
        wanted = self._version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COVER_S):
                while self._kept_version < wanted:
                    self._urgent.set()
                    await self._kept.wait()

    async def _write_on(self) -> None:
        """Group commit: one write for all who wait for one."""
        while True:
            await self._write.wait()
            self._write.clear()
            lines, waiting = self._books.take(), self._unwritten
            self._unwritten = []
            try:
                if lines:
                    await _to_the_end(self._books.write, lines)
                    self.counts.writes += 1
            except JournalError as error:
                self._failed(error, waiting)
                continue
            for each in waiting:
                if not each.done():
                    each.set_result(None)
            self._books.compact()

    def _failed(self, error: JournalError, waiting: list[asyncio.Future[None]]) -> None:
        """A write failed: nobody who waits gets an answer, and the books are as on the disk."""
        log.error("%s: calls are refused until it can be written", error)
        waiting, self._unwritten = waiting + self._unwritten, []
        try:
            self._books.restore()
        except JournalError as again:
            self._end(str(again))
        self._version += 1
        self._changed.set()  # a snapshot may hold what was taken back
        self._refuse(waiting, str(error))

    def _refuse(self, waiting: list[asyncio.Future[None]], why: str) -> None:
        for each in waiting:
            if not each.done():
                each.set_exception(UnavailableError(why))

    async def _tick_on(self) -> None:
        """Time passes: trainers that are gone, leases without progress, late settlers."""
        while True:
            await asyncio.sleep(_TICK_S)
            with contextlib.suppress(UnavailableError):
                await self._tick()

    async def _tick(self) -> None:
        now_s, ledger = self._clock_s(), self.ledger
        if ledger.settling:
            if now_s >= self._settled_at_s:
                log.info("trainers did not come back", extra=keys(trainers=sorted(ledger.settling)))
                self._execute({"do": "settle"})
                await self._durable()
            return
        for waiter in self._waiters:
            self.liveness.heard(waiter.trainer, now_s)
        holding = {one.name: bool(one.held) for one in ledger.members}
        due = self.liveness.due(holding, now_s)
        if due is None:
            return
        for kind, said in (("trainers", "trainers are gone"), ("stuck", "trainers are stuck")):
            if due[kind]:
                log.warning(said, extra=keys(trainers=sorted(due[kind])))
        self._execute(due)
        for name in due["trainers"]:
            self.liveness.forget(name)
        await self._durable()

    async def _keep_on(self, fence: Fence) -> None:
        """Snapshots, at most one a second unless somebody waits, and only of what changed."""
        pause_s = _SNAPSHOT_S
        while True:
            await self._changed.wait()
            try:
                await self._keep(fence)
                pause_s = _SNAPSHOT_S
            except FencedError as error:
                self.exit_code = FENCED
                self._end(str(error))
                return
            except JournalError as error:
                log.warning("%s: trying again", error)
                self._changed.set()
                pause_s = min(_MOST_BACKOFF_S, pause_s * 2)
            await asyncio.sleep(_LEAST_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s - _LEAST_PAUSE_S):
                    await self._urgent.wait()

    async def _keep(self, fence: Fence) -> None:
        ledger = self.ledger
        calls = _calls(ledger)
        dumped, outcome, version = ledger.dump(), status.outcome(ledger), self._version
        self._changed.clear()
        self._urgent.clear()
        await _to_the_end(fence.write, ledger.generation, dumped, outcome)
        self._safe, self._kept_version = calls, version
        self._kept.set()
        self._kept.clear()
        self.counts.snapshots += 1

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        """Without its loops a master would accept calls and never answer: better to start again."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a loop of the master broke", exc_info=error)
            self._end(f"an error in the master itself, see its log: {error!r:.200}")
            self._refuse(self._unwritten, str(error))
            self._unwritten = []

    def _end(self, why: str) -> None:
        if not self.fatal.done():
            log.error("this master stops: %s", why)
            self.fatal.set_result(why)


def _calls(ledger: Ledger) -> dict[tuple[str, str], int]:
    """The newest call of each process."""
    return {(one.name, one.incarnation): one.call for one in ledger.members}


async def _to_the_end(act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Runs something that blocks in a thread. Who cancels it waits for it: it must not go on alone."""
    work = asyncio.ensure_future(asyncio.to_thread(act, *args, **kwargs))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        if not work.cancelled() and (error := work.exception()) is not None:
            log.warning("%s", error)
        raise


_MORE = ("trainer", "incarnation", "want", "kinds", "datasets", "call")
