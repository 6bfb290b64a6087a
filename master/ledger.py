"""The ledger of one job: leases, finished tasks, checkpoints. Pure, and without a clock.

Every change is a command. The same commands in the same order always produce the same ledger and
the same answers, so a journal of commands is enough to restore a ledger (decision 0007). A refused
command changes nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from edl_protocol.master import MAX_EVALUATIONS

from master.bounds import MAX_AHEAD, check_assigned
from master.checkpoints import Checkpoints
from master.commands import (
    Command,
    Describe,
    EndOutage,
    EndSettling,
    EndTicket,
    Evaluate,
    Expire,
    ExpireLeaked,
    Fail,
    Join,
    Lead,
    Leave,
    More,
    Retry,
    Rewind,
    Rollback,
    Save,
    Saved,
    TakeOver,
    Term,
    Work,
)
from master.dataset import Dataset
from master.dataset_registry import DatasetRegistry
from master.failures import Failures
from master.leases import FailingTask, Leases, TaskQueue
from master.rewinds import Rewinds
from master.rollbacks import JobRollbacks
from master.takeover import Takeover
from master.trainers import Trainer, TrainerRegistry, lost_with_process
from runtime.call_checks import Json, RefusedError

VERSION = 1
"""Version of the snapshot format; other versions are refused."""
MAX_DROPPED_SHARE = 0.01
"""Default share of a data set's tasks that may be dropped before the job fails."""


class Ledger:
    """All state of a job that must survive a restart. Not thread-safe; only `execute` changes it.

    The ledger dispatches commands; its parts hold the state: data sets, task queue, failures, leases,
    takeover and checkpoints.
    """

    def __init__(
        self,
        job: str,
        *,
        max_dropped_share: float = MAX_DROPPED_SHARE,
        max_steps: int | None = None,
    ) -> None:
        """Creates an empty ledger.

        Args:
            job: The job's name.
            max_dropped_share: The job fails if a larger share of a data set's tasks is dropped.
            max_steps: Steps of all trainers together after which training ends.
        """
        self.job = job
        self.max_dropped_share = max_dropped_share
        self.max_steps = max_steps
        self.trainers = TrainerRegistry()
        self.rollbacks = JobRollbacks()
        """Work that was lost in rollbacks of the model's state."""
        self._registry = DatasetRegistry()
        self._queue = TaskQueue(self._registry, max_steps)
        self._failures = Failures()
        self._leases = Leases(self._registry, self._queue, self._failures, max_dropped_share)
        self._takeover = Takeover(self._registry, self.trainers, self._leases)
        self._checkpoints = Checkpoints()
        # each command has one method; `execute` looks it up here
        self._methods: dict[type[Command], Callable[[Any], Json]] = {
            Join: self._join,
            Term: self._term,
            Describe: self._describe,
            Work: self._work,
            More: self._more,
            Leave: self._leave,
            Expire: self._expire,
            ExpireLeaked: self._expire_leaked,
            EndSettling: self._end_settling,
            Retry: self._retry,
            EndOutage: self._end_outage,
            EndTicket: self._checkpoints.end,
            Save: self._save,
            Saved: self._checkpoints.finish,
            Evaluate: self._evaluate,
            Fail: self._fail_job,
            Rollback: self._rollback,
            Rewind: self._rewind,
            TakeOver: self._take_over,
        }

    def check(self, command: Command) -> None:
        """Checks the limits of a new command, before it is executed.

        Commands of a journal are not checked: they were answered, perhaps by a master without these
        limits.

        Raises:
            RefusedError: The command exceeds a limit; the error names the field.
        """
        match command:
            case Evaluate():
                dataset = self.datasets.get(command.dataset)
                if dataset is not None and dataset.evaluations_full:
                    raise RefusedError(
                        409,
                        f"{dataset.name} has {MAX_EVALUATIONS} pending evaluations: ask again when "
                        "some are done",
                        "dataset",
                    )
            case Join(lead=Lead() as lead):
                self._check_term(lead, "lead.term")
            case Term():
                self._check_term(command, "term")
            case Save():
                check_assigned("newest", command.newest, self.versions + MAX_AHEAD)
            case _:
                pass

    def _check_term(self, lead: Lead | Term, field: str) -> None:
        """Refuses a term far beyond the newest of the data set."""
        dataset = self.datasets.get(lead.dataset)
        if dataset is not None:
            check_assigned(field, lead.term, dataset.terms.newest + MAX_AHEAD)

    def execute(self, command: Command) -> Json:
        """Executes a command and returns the answer, see `_methods`.

        Raises:
            RefusedError: The command cannot be executed; nothing has changed.
        """
        method = self._methods[type(command)]
        return method(command)

    def _join(self, command: Join) -> Json:
        name, incarnation, lead = command.trainer, command.incarnation, command.lead
        term = {} if lead is None else {"term": self._registry.lead(incarnation, lead)}
        trainer = self.trainers.find(name)
        if trainer is None or trainer.incarnation != incarnation:
            if trainer is not None:
                self._leases.end_all(trainer, lost_with_process(command, trainer))
                if not term:  # the previous leader may still write the group's checkpoint
                    self._checkpoints.revoke(name)
            trainer = self.trainers.add(name, incarnation)
        lost = self._takeover.join(trainer, command.done, command.held)
        return {"lost": lost, "state": self.directive(), **term}

    def _term(self, command: Term) -> Json:
        trainer = self.require_trainer(command.trainer, command.incarnation)
        lead = Lead(command.dataset, command.term, begins=True)
        return {"term": self._registry.lead(trainer.incarnation, lead)}

    def _describe(self, command: Describe) -> Json:
        return self._registry.describe(command.name, command.shape)

    def _work(self, command: Work) -> Json:
        trainer = self.require_trainer(command.trainer, command.incarnation)
        call = command.call
        if call is not None and trainer.answer is not None and call <= trainer.call:
            if call == trainer.call:
                return trainer.answer
            raise RefusedError(409, f"call {call} arrives after call {trainer.call}", "call")
        leases = self._leases
        results = [
            *(leases.acknowledge(trainer, task) for task in command.done or ()),
            *(leases.fail(trainer, task) for task in command.failed or ()),
            *(leases.take_back(trainer, lease) for lease in command.back or ()),
        ]
        return self._lease(trainer, command, results)

    def _more(self, command: More) -> Json:
        trainer = self.require_trainer(command.trainer, command.incarnation)
        call = command.call
        if call is not None and call < trainer.call:
            return {
                "results": [],
                "tasks": [],
                "state": "wait",
            }  # the client no longer waits for it
        if call == trainer.call and trainer.answer is not None and trainer.answer["tasks"]:
            return trainer.answer  # a repeated call: the other copy waited, too, and was answered
        return self._lease(trainer, command, [])

    def _lease(self, trainer: Trainer, command: Work | More, results: list[str]) -> Json:
        """Leases tasks to a trainer, and returns the answer with the results of its reports."""
        tasks = []
        if self._grants:
            tasks = self._leases.grant(trainer, command, self._takeover.base)
        state = self._state_of(command, leased=bool(tasks))
        answer = {"results": results, "tasks": tasks, "state": state}
        if command.call is not None:
            trainer.call, trainer.answer = command.call, answer
        return answer

    def _leave(self, command: Leave) -> Json:
        trainer = self.require_trainer(command.trainer, command.incarnation)
        for lease in command.back or ():
            self._leases.take_back(trainer, lease)
        self._release(trainer, command.trained)
        self.trainers.remove(trainer.name)
        return {}

    def _expire(self, command: Expire) -> Json:
        for name, trained in command.trainers.items():
            dead = self.trainers.find(name)
            if dead is not None:
                self._release(dead, trained)
                self.trainers.remove(name)
                self._takeover.forget(name)
        for name, trained in command.stuck.items():
            stuck = self.trainers.find(name)
            if stuck is not None:
                self._release(stuck, trained)
        return {}

    def _expire_leaked(self, command: ExpireLeaked) -> Json:
        for name, tasks in command.leaked.items():
            leaking = self.trainers.find(name)
            if leaking is not None:
                for task in [task for task in tasks if task in leaking.leases]:
                    self._leases.end(leaking, task)
        return {}

    def _end_settling(self, _: EndSettling) -> Json:
        return self._expire(Expire({name: {} for name in sorted(self.settling)}))

    def _retry(self, command: Retry) -> Json:
        self._leases.retry(command, single=len(self.trainers) <= 1)
        return {}

    def _end_outage(self, command: EndOutage) -> Json:
        dataset = self.datasets[command.dataset]
        if dataset.outage and not self.failed:
            self._leases.end_outage(dataset, command.lasted_s)
        return {}

    def _save(self, command: Save) -> Json:
        trainer = self.require_trainer(command.trainer, command.incarnation)
        return self._checkpoints.grant(trainer.name, command.newest, self.generation)

    def _evaluate(self, command: Evaluate) -> Json:
        self._registry.evaluate(command.dataset, command.model_version)
        return {"model_version": command.model_version, "dataset": command.dataset}

    def _fail_job(self, command: Fail) -> Json:
        """Fails the job; a later reason does not replace the first."""
        trainer = self.require_trainer(command.trainer, command.incarnation)
        if self.state() not in ("done", "failed"):
            self._failures.fail_job(f"{trainer.name}: {command.reason}")
        return {"state": self.state()}

    def _rollback(self, command: Rollback) -> Json:
        self.require_trainer(command.trainer, command.incarnation)
        self.rollbacks.add(command)
        return {}

    def _rewind(self, command: Rewind) -> Json:
        trainer = self.require_trainer(command.trainer, command.incarnation)
        if (state := self.state()) in ("done", "failed"):
            raise RefusedError(409, f"the job is {state}: nothing is trained again", "state")
        rewinds = Rewinds(self._registry, self.trainers, self._queue, self.rollbacks)
        return rewinds.execute(trainer, command)

    def _take_over(self, _: TakeOver) -> Json:
        self._takeover.begin()
        self._checkpoints.revoke_any()
        return {"generation": self.generation}

    def _release(self, trainer: Trainer, trained: Mapping[str, int]) -> None:
        """Ends the leases of a trainer, and its ticket for a checkpoint."""
        self._leases.end_all(trainer, trained)
        self._checkpoints.revoke(trainer.name)

    # -- queries -----------------------------------------------------------------------------

    @property
    def datasets(self) -> dict[str, Dataset]:
        """The data sets by name, in the order of their descriptions."""
        return self._registry.by_name

    @property
    def generation(self) -> int:
        """Number of masters that the job has had; each resumed from the snapshot of the previous one."""
        return self._takeover.generation

    @property
    def settling(self) -> set[str]:
        """Trainers of the previous master that have not joined this one yet."""
        return self._takeover.settling

    @property
    def steps(self) -> int:
        """Steps of all trainers together."""
        return self._queue.steps

    @property
    def failed(self) -> str:
        """Why the job failed; "" if it has not."""
        return self._failures.job_reason

    @property
    def failures(self) -> list[Json]:
        """The newest reports of failed tasks."""
        return self._failures.newest

    @property
    def dropped(self) -> list[Json]:
        """The newest tasks that failed too often, with their last error."""
        return self._failures.dropped

    @property
    def lost_records(self) -> int:
        """Records that were trained but not acknowledged when their lease ended; they are trained again."""
        return self._leases.lost_records

    @property
    def trained_again_records(self) -> int:
        """Records that two trainers acknowledged, because two masters leased the task."""
        return self._takeover.trained_again_records

    @property
    def checkpoint(self) -> Json | None:
        """The newest checkpoint; None before the first."""
        return self._checkpoints.newest

    @property
    def versions(self) -> int:
        """The newest checkpoint version that was granted or reported."""
        return self._checkpoints.versions

    @property
    def complete(self) -> bool:
        """Whether all data sets are done; see `TaskQueue.complete`."""
        return self._queue.complete

    def failing(self) -> Iterator[FailingTask]:
        """Returns the failed tasks that wait for the end of their pause, or for another trainer."""
        return self._leases.failing()

    @property
    def ticket(self) -> str:
        """The ticket of the trainer that writes a checkpoint now; "" if there is none."""
        return self._checkpoints.ticket

    def directive(self) -> str:
        """Returns the instruction in answers to heartbeats and joins: "work" or "stop"."""
        return "stop" if self.failed else "work"

    def state(self) -> str:
        """Returns the job's state: "waiting" for a data set, "working", "done" or "failed"."""
        if self.failed:
            return "failed"
        if self.complete:
            return "done"
        return "working" if self.datasets else "waiting"

    def has_answer_for(self, call: More) -> bool:
        """Returns whether a waiting call would get an answer other than "wait" now."""
        if self._state_of(call, leased=False) != "wait":
            return True
        return self._grants and self._queue.next(call) is not None

    def holds_lease(self, task: str, attempt: int, trainer: str) -> bool:
        """Returns whether a trainer holds exactly this lease."""
        return self._leases.holds(trainer, task, attempt)

    def require_trainer(self, name: str, incarnation: str) -> Trainer:
        """Returns the trainer that calls.

        Raises:
            RefusedError: 404 if it has not joined, 409 if a newer process replaced it.
        """
        trainer = self.trainers.find(name)
        if trainer is None or name in self.settling:
            raise RefusedError(404, f"{name} has not joined: join first", "trainer")
        if trainer.incarnation != incarnation:
            raise RefusedError(
                409, f"{name} was restarted: another process has this name", "incarnation"
            )
        return trainer

    @property
    def _grants(self) -> bool:
        """Whether tasks are leased: the job has not failed, and all trainers have joined again."""
        return not self.failed and not self.settling

    def _state_of(self, call: Work | More, *, leased: bool) -> str:
        """Returns the state in the answer to a call for work."""
        if self.failed:
            return "stop"
        if leased:
            return "work"
        return "done" if self._queue.is_over(call) else "wait"

    # -- snapshots ---------------------------------------------------------------------------

    def dump(self) -> Json:
        """Returns the whole ledger as JSON, a few kilobytes no matter how large the data is.

        The result shares no mutable value with the ledger, so another thread may write it.
        """
        return {
            "version": VERSION,
            "job": self.job,
            "members": self.trainers.dump(),
            "setbacks": self.rollbacks.dump(),
            **self._registry.dump(),
            **self._queue.dump(),
            **self._failures.dump(),
            **self._leases.dump(),
            **self._takeover.dump(),
            **self._checkpoints.dump(),
        }

    def load(self, dumped: Json) -> None:
        """Restores what `dump` wrote."""
        self.trainers.load(dumped["members"])
        self.rollbacks = JobRollbacks.load(dumped.get("setbacks"))
        self._registry.load(dumped)
        self._queue.load(dumped)
        self._failures.load(dumped)
        self._leases.load(dumped, self.trainers)
        self._takeover.load(dumped)
        self._checkpoints.load(dumped)
