"""The service between HTTP and the ledger: executes calls, and answers once they are on the disk.

Everything runs in one asyncio loop; only writes to the disk and to the cluster run in threads.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict

from edl_protocol.master import VERSION as PROTOCOL
from edl_protocol.master import (
    CheckpointReport,
    CheckpointRequest,
    EvaluationRequest,
    HeartbeatRequest,
    JobFailure,
    JoinRequest,
    LeaveRequest,
    PositionRequest,
    RewindRequest,
    RollbackReport,
    TermRequest,
    WorkRequest,
)

from master import incoming, status
from master.commands import (
    Acknowledgement,
    Command,
    Describe,
    EndSettling,
    Evaluate,
    ExpireLeaked,
    Fail,
    More,
    Save,
    Saved,
    Term,
    Work,
)
from master.dataset_registry import kind_of
from master.durable_ledger import DurableLedger, GroupCommit
from master.errors import FencedError, UnavailableError
from master.fence import Fence
from master.key_calls import KeyCalls
from master.leases import ACCEPTED
from master.ledger import Ledger
from master.liveness import Liveness
from master.long_polls import LongPolls, WaitingCalls
from master.rendezvous import STUCK_S, Rendezvous
from master.retry_pauses import OUTAGE_S, RETRY_S, RetryPauses
from master.snapshots import Snapshots
from runtime.call_checks import Json
from runtime.logs import keys

log = logging.getLogger(__name__)

FENCED = 3
"""Exit code of a master that was replaced."""
SETTLE_HEARTBEATS = 3
"""Heartbeat intervals for which a new master waits for the previous master's trainers to join."""
_TICK_S = 0.25
AGAIN_S = 0.2
"""After how many seconds trainers should repeat a call that had no result."""


class MasterService:
    """Executes the calls of one job's trainers, writes journal and snapshots, and expires leases."""

    def __init__(
        self,
        durable_ledger: DurableLedger,
        heartbeat_s: float,
        clock_s: Callable[[], float],
        fence: Fence | None = None,
        *,
        stuck_s: float = STUCK_S,
        outage_s: float = OUTAGE_S,
        retry_s: float = RETRY_S,
    ) -> None:
        """Creates the service; `start` starts its loops.

        Args:
            durable_ledger: The job's ledger.
            heartbeat_s: The interval of trainers' heartbeats.
            clock_s: A monotonic clock.
            fence: Stores snapshots; without a fence there is only the journal.
            stuck_s: How long a member of a synchronous job may let the others wait.
            outage_s: How long a data set may be unreadable before the job fails.
            retry_s: The pause of a task after its first failure; later pauses are longer.
        """
        self._outage_s = outage_s
        self._pauses = RetryPauses(retry_s)
        self._durable_ledger = durable_ledger
        self._clock_s = clock_s
        self.liveness = Liveness(heartbeat_s)
        names = [trainer.name for trainer in durable_ledger.ledger.trainers]
        self.liveness.reset(names, clock_s())
        self._settled_at_s = clock_s() + SETTLE_HEARTBEATS * heartbeat_s
        rendezvous = Rendezvous(clock_s(), settles=not durable_ledger.is_new, stuck_s=stuck_s)
        self.key_calls = KeyCalls(rendezvous, clock_s)
        self.long_polls = LongPolls(rendezvous, clock_s, self.key_calls.note_round)
        """The calls of the rendezvous, which is not a part of the ledger."""
        self._waiting_calls = WaitingCalls()
        self.counters = status.ServiceCounters()
        self._snapshots = Snapshots(durable_ledger, fence, self.counters)
        self._group_commit = GroupCommit(
            durable_ledger, self.counters, self._snapshots.note_change, self._end
        )
        self.fatal: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set to the reason when this master must stop."""
        self.exit_code = 1
        """Exit code of the process, once `fatal` is set."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def snapshot_is_current(self) -> bool:
        """Whether the newest snapshot contains everything that was answered."""
        return self._snapshots.is_current

    @property
    def ledger(self) -> Ledger:
        """The current ledger; a failed write replaces it."""
        return self._durable_ledger.ledger

    async def start(self) -> None:
        """Starts the loops that write, store snapshots and expire leases."""
        loops = (
            self._group_commit.run(),
            self._tick_loop(),
            self.long_polls.run(),
            self._snapshot_loop(),
        )
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        for task in self._tasks:
            task.add_done_callback(self._loop_ended)

    async def stop(self) -> None:
        """Ends all loops, and stores a last snapshot if there is a fence."""
        await self.halt()
        if not self.fatal.done():
            await self._snapshots.store_last()

    async def halt(self) -> None:
        """Ends all loops without a last snapshot; the journal contains everything that was answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._waiting_calls.end()
        self.long_polls.end()
        self.key_calls.end()

    # -- calls -------------------------------------------------------------------------------

    async def join(self, body: JoinRequest) -> Json:
        """Adds a trainer; see the protocol."""
        name = body.trainer
        answer = self._execute(incoming.join(body, self.liveness.trained_records(name)))
        self.liveness.forget(name)
        self.liveness.record_call(name, self._clock_s())
        if body.lead is not None:
            self._snapshots.request()
        await self._group_commit.wait()
        return {
            "job": self.ledger.job,
            "heartbeat_s": self.liveness.heartbeat_s,
            "generation": self.ledger.generation,
            "protocol": PROTOCOL,
            **answer,
        }

    async def term(self, body: TermRequest) -> Json:
        """Begins a leader's next term; see the protocol."""
        answer = self._execute(Term(body.trainer, body.incarnation, body.dataset, body.term))
        self._snapshots.request()  # the next master must not accept an older model as the newest
        await self._group_commit.wait()
        return answer

    async def describe(self, name: str, shape: Json) -> Json:
        """Describes a data set; see the protocol."""
        answer = self._execute(Describe(name, shape))
        await self._group_commit.wait()
        return answer

    async def work(self, body: WorkRequest) -> Json:
        """Acknowledges and leases tasks, and waits if none is free; see the protocol."""
        self._log_failed_tasks(body)
        command = incoming.work(body)
        answer = self._work(command, command.done or ())
        if answer["state"] == "wait" and not answer["results"] and body.want and body.wait_s > 0:
            follow_up = incoming.after_waiting(command)
            if await self._waiting_calls.wait(follow_up, body.wait_s):
                answer = self._work(follow_up)
        await self._group_commit.wait()
        if answer["state"] in ("done", "stop"):
            await self._snapshots.wait()
        return self._complete(body.trainer, answer)

    async def heartbeat(self, body: HeartbeatRequest) -> Json:
        """Records a heartbeat; only expired leases are written to the journal. See the protocol."""
        name, reports = body.trainer, body.held
        leases = self.ledger.require_trainer(name, body.incarnation).leases
        trained = {lease.task: lease.trained for lease in reports}
        leaked = self.liveness.record_heartbeat(name, trained, self._clock_s(), leases)
        if leaked:
            log.warning(
                "trainer does not report its leased tasks: they expire",
                extra=keys(trainer=name, tasks=leaked),
            )
            self._execute(ExpireLeaked({name: leaked}))
            await self._group_commit.wait()
        ledger = self.ledger
        lost = [r.task for r in reports if not ledger.holds_lease(r.task, r.attempt, name)]
        state, pace_s = ledger.directive(), self.liveness.pace_s
        return {"lost": lost, "state": state, "generation": ledger.generation, "pace_s": pace_s}

    async def leave(self, body: LeaveRequest) -> Json:
        """Removes a trainer; see the protocol."""
        trained = self.liveness.trained_records(body.trainer)
        answer = self._execute(incoming.leave(body, trained))
        self.liveness.forget(body.trainer)
        await self._group_commit.wait()
        await self._snapshots.wait()
        return answer

    async def save(self, body: CheckpointRequest) -> Json:
        """Grants or denies a checkpoint; see the protocol."""
        answer = self._execute(Save(body.trainer, body.incarnation, body.newest))
        await self._group_commit.wait()
        return answer if answer["granted"] else {**answer, "again_s": AGAIN_S}

    async def saved(self, ticket: str, body: CheckpointReport) -> Json:
        """Records the result of a checkpoint; see the protocol."""
        answer = self._execute(Saved(ticket, body.path, body.step, body.ok))
        await self._group_commit.wait()
        return answer

    async def fail(self, body: JobFailure) -> Json:
        """Fails the job; see the protocol."""
        answer = self._execute(Fail(body.trainer, body.incarnation, body.reason))
        log.error("a trainer ends the job", extra=keys(**asdict(body)))
        await self._group_commit.wait()
        await self._snapshots.wait()
        return answer

    async def rollback(self, body: RollbackReport) -> Json:
        """Records lost work; see the protocol."""
        answer = self._execute(incoming.rollback(body))
        log.warning("work was lost with the model's state", extra=keys(**asdict(body)))
        await self._group_commit.wait()
        return answer

    async def evaluate(self, body: EvaluationRequest) -> Json:
        """Queues an evaluation; see the protocol."""
        answer = self._execute(Evaluate(body.model_version, body.dataset))
        await self._group_commit.wait()
        return answer

    async def rewind(self, body: RewindRequest) -> Json:
        """Sets a data set back to the position of a restored model; see the protocol."""
        answer = self._execute(incoming.rewind(body))
        call = {n: v for n, v in vars(body).items() if n not in ("position", "remaining")}
        level = logging.WARNING if answer["records"] else logging.INFO
        log.log(level, "the data is set back with the model", extra=keys(**call, **answer))
        await self._group_commit.wait()
        await self._snapshots.wait()  # the next master must not continue after that position
        return answer

    async def position(self, body: PositionRequest) -> Json:
        """Returns the position in a data set; see the protocol."""
        return status.position(self.ledger, body.dataset, body.tasks)

    def status(self) -> Json:
        """Returns the status of the job, for users and the reconciler."""
        rendezvous, now_s = self.long_polls.report(), self._clock_s()
        return status.report(self.ledger, self.liveness, self.counters, rendezvous, now_s)

    # -- inside ------------------------------------------------------------------------------

    def _work(self, command: Work | More, done: Sequence[Acknowledgement] = ()) -> Json:
        name, now_s = command.trainer, self._clock_s()
        trainer = self.ledger.trainers.find(name)
        had_none = trainer is None or not trainer.leases
        answer = self._execute(command)
        accepted = [e.task for e, r in zip(done, answer["results"], strict=False) if r == ACCEPTED]
        self.counters.acknowledged += len(accepted)
        self.counters.stale += sum(result != ACCEPTED for result in answer["results"])
        self.counters.leased += len(answer["tasks"])
        kinds = {task: kind_of(self.ledger.datasets, task) for task in accepted}
        self.liveness.record_acknowledged(name, kinds, now_s)
        if answer["tasks"]:
            self.liveness.record_leased(name, now_s, had_none=had_none)
        return answer

    def _execute(self, command: Command) -> Json:
        if self.fatal.done():
            raise UnavailableError(self.fatal.result())
        answer = self._durable_ledger.execute(command)
        if self._durable_ledger.has_pending:
            self._snapshots.note_change()
        self._waiting_calls.wake(self.ledger)
        return answer

    def _complete(self, trainer: str, answer: Json) -> Json:
        """Adds the fields of an answer that change with time and are not in the journal."""
        lease_s = self.liveness.lease_s
        return {
            **answer,
            "tasks": [{**task, "lease_s": lease_s([task["kind"]])} for task in answer["tasks"]],
            "generation": self.ledger.generation,
            "safe": self._snapshots.safe_call(trainer),
            **({} if answer["tasks"] else {"again_s": AGAIN_S}),
            **({"settling": True} if self.ledger.settling else {}),
        }

    def _log_failed_tasks(self, body: WorkRequest) -> None:
        for failed in body.failed:
            log.warning(
                "task failed",
                extra=keys(task=failed.task, trainer=body.trainer, error=failed.error),
            )

    async def _tick_loop(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            with contextlib.suppress(UnavailableError):
                await self._tick()

    async def _tick(self) -> None:
        """Expires the leases of trainers that are dead, stuck, or have not joined again."""
        now_s, ledger = self._clock_s(), self.ledger
        if ledger.settling:
            if now_s >= self._settled_at_s:
                log.info("trainers did not rejoin", extra=keys(trainers=sorted(ledger.settling)))
                self._execute(EndSettling())
                await self._group_commit.wait()
            return
        for name in self._waiting_calls.trainers:
            self.liveness.record_call(name, now_s)
        self._end_pauses(now_s)
        kinds = {
            trainer.name: {kind_of(ledger.datasets, task) for task in trainer.leases}
            for trainer in ledger.trainers
        }
        command = self.liveness.expiry_command(kinds, now_s)
        if command is None:
            return
        for event, names in (
            ("trainers are dead", command.trainers),
            ("trainers are stuck", command.stuck),
        ):
            if names:
                log.warning(event, extra=keys(trainers=sorted(names)))
        self._execute(command)
        for name in command.trainers:
            self.liveness.forget(name)
        await self._group_commit.wait()

    def _end_pauses(self, now_s: float) -> None:
        """Ends the pauses, outages and tickets that have lasted long enough."""
        retry = self._pauses.retry(self.ledger, now_s)
        unreadable = self._pauses.unreadable
        outage = self._pauses.outage(self.ledger, self._outage_s, now_s)
        if self._pauses.unreadable != unreadable:
            log.warning("data sets cannot be read", extra=keys(datasets=self._pauses.unreadable))
        ticket = self._pauses.ticket(self.ledger.ticket, now_s)
        for command in (retry, outage, ticket):
            if command is not None:
                self._execute(command)

    async def _snapshot_loop(self) -> None:
        """Stores snapshots until another master has taken over."""
        try:
            await self._snapshots.run()
        except FencedError as error:
            self.exit_code = FENCED
            self._end(str(error))

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        """Stops the master when a loop fails, because calls would never be answered."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a loop of the master failed", exc_info=error)
            self._end(f"an error in the master itself, see its log: {error!r:.200}")
            self._group_commit.refuse(str(error))

    def _end(self, reason: str) -> None:
        if not self.fatal.done():
            log.error("this master stops: %s", reason)
            self.fatal.set_result(reason)
