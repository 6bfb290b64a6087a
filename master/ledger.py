"""The ledger of one job: leases, finished tasks, checkpoints. Pure, and without a clock.

Every change is a command: a small JSON object. The same commands in the same order always produce
the same ledger and the same answers, so a journal of commands is enough to restore it
(decision 0007). A command that is refused changes nothing.
"""

from collections.abc import Callable

from master.checkpoints import Checkpoints
from master.dataset import Dataset
from master.dataset_registry import DatasetRegistry
from master.errors import RefusedError
from master.failures import Failures
from master.leases import Leases
from master.rollbacks import JobRollbacks
from master.takeover import Takeover
from master.task_queue import TaskQueue
from master.trainers import Trainer, TrainerRegistry
from master.types import Json

VERSION = 1
"""Version of the snapshot format; others are refused."""
MOST_DROPPED = 16
"""Default of the tasks that may be dropped before the job fails."""


class Ledger:
    """All state of a job that must survive a restart. Not thread-safe; changed by `execute` only.

    It executes commands; what they change is in its parts.
    """

    def __init__(
        self, job: str, *, most_dropped: int = MOST_DROPPED, max_steps: int | None = None
    ) -> None:
        """Makes an empty ledger.

        Args:
            job: The job's name.
            most_dropped: More dropped tasks than this fail the job.
            max_steps: Steps of all trainers together after which training ends.
        """
        self.job = job
        self.most_dropped = most_dropped
        self.max_steps = max_steps
        self.trainers = TrainerRegistry()
        self.rollbacks = JobRollbacks()
        """Work that was lost because model state was rolled back."""
        self._registry = DatasetRegistry()
        self._queue = TaskQueue(self._registry, max_steps)
        self._failures = Failures(most_dropped)
        self._leases = Leases(self._registry, self._queue, self._failures)
        self._takeover = Takeover(self._registry, self.trainers, self._leases)
        self._checkpoints = Checkpoints()
        self._commands: dict[str, Callable[[Json], Json]] = {
            "join": self._join,
            "term": self._term,
            "describe": self._describe,
            "work": self._work,
            "more": self._more,
            "leave": self._leave,
            "expire": self._expire,
            "settle": self._settle,
            "save": self._save,
            "saved": self._saved,
            "evaluate": self._evaluate,
            "fail": self._fail_job,
            "setback": self._rollback,
            "takeover": self._take_over,
        }

    # -- commands ----------------------------------------------------------------------------

    def execute(self, command: Json) -> Json:
        """Executes a command and returns the answer.

        Raises:
            RefusedError: It cannot be executed; nothing has changed.
        """
        return self._commands[command["do"]](command)

    def _join(self, command: Json) -> Json:
        name, incarnation = command["trainer"], command["incarnation"]
        lead = command.get("lead")
        term = {} if lead is None else {"term": self._registry.lead(incarnation, lead)}
        trainer = self.trainers.find(name)
        if trainer is None or trainer.incarnation != incarnation:
            if trainer is not None:
                self._leases.end_all(trainer, _lost_with_process(command, trainer))
                if not term:  # the previous leader may still write the group's checkpoint
                    self._checkpoints.revoke(name)
            trainer = self.trainers.add(name, incarnation)
        lost = self._takeover.join(trainer, command.get("done", ()), command.get("held", ()))
        return {"lost": lost, "state": self.directive(), **term}

    def _term(self, command: Json) -> Json:
        """Begins the leader's next term, because its group continues with other members."""
        trainer = self.require_trainer(command)
        return {"term": self._registry.lead(trainer.incarnation, {**command, "begins": True})}

    def _describe(self, command: Json) -> Json:
        return self._registry.describe(command["name"], command["shape"])

    def _work(self, command: Json) -> Json:
        trainer = self.require_trainer(command)
        call = command.get("call")
        if call is not None and trainer.answer is not None and call <= trainer.call:
            if call == trainer.call:
                return trainer.answer
            raise RefusedError(409, f"call {call} arrives after call {trainer.call}", "call")
        leases = self._leases
        results = [
            *(leases.acknowledge(trainer, entry) for entry in command.get("done", ())),
            *(leases.fail(trainer, entry) for entry in command.get("failed", ())),
            *(leases.take_back(trainer, entry) for entry in command.get("back", ())),
        ]
        return self._lease(trainer, command, results)

    def _more(self, command: Json) -> Json:
        """Leases the tasks that are free now, for a call for work that waited."""
        trainer = self.require_trainer(command)
        call = command.get("call")
        if call is not None and call < trainer.call:
            return {"results": [], "tasks": [], "state": "wait"}  # its client has given up
        if call == trainer.call and trainer.answer is not None and trainer.answer["tasks"]:
            return trainer.answer  # the same call arrived twice, and both waited
        return self._lease(trainer, command, [])

    def _lease(self, trainer: Trainer, command: Json, results: list[str]) -> Json:
        """Leases tasks to a trainer; returns the answer to its call, after results of reports."""
        tasks = []
        if self._grants:
            tasks = self._leases.grant(trainer, command, self._takeover.base)
        state = self._state_of(command, leased=bool(tasks))
        answer = {"results": results, "tasks": tasks, "state": state}
        call = command.get("call")
        if call is not None:
            trainer.call, trainer.answer = call, answer
        return answer

    def _leave(self, command: Json) -> Json:
        trainer = self.require_trainer(command)
        self._release(trainer, command.get("trained", {}))
        self.trainers.remove(trainer.name)
        return {}

    def _expire(self, command: Json) -> Json:
        """Ends leases on behalf of liveness: of dead and stuck trainers, and leaked ones."""
        for name, trained in command.get("trainers", {}).items():
            dead = self.trainers.find(name)
            if dead is not None:
                self._release(dead, trained)
                self.trainers.remove(name)
                self._takeover.forget(name)
        for name, trained in command.get("stuck", {}).items():
            stuck = self.trainers.find(name)
            if stuck is not None:
                self._release(stuck, trained)
        for name, tasks in command.get("leaked", {}).items():
            leaking = self.trainers.find(name)
            if leaking is not None:
                for task in [task for task in tasks if task in leaking.leases]:
                    self._leases.end(leaking, task)
        return {}

    def _settle(self, _: Json) -> Json:
        """Removes the trainers that did not join the new master in time."""
        return self._expire({"trainers": {name: {} for name in sorted(self.settling)}})

    def _save(self, command: Json) -> Json:
        trainer = self.require_trainer(command)
        newest = command.get("newest", 0)
        return self._checkpoints.grant(trainer.name, newest, self.generation)

    def _saved(self, command: Json) -> Json:
        self._checkpoints.finish(command)
        return {}

    def _evaluate(self, command: Json) -> Json:
        name, model_version = command["dataset"], command["model_version"]
        self._registry.evaluate(name, model_version)
        return {"model_version": model_version, "dataset": name}

    def _fail_job(self, command: Json) -> Json:
        """Fails the job, because a trainer reports that it cannot succeed; the first reason stays."""
        trainer = self.require_trainer(command)
        if self.state() not in ("done", "failed"):
            self._failures.fail_job(f"{trainer.name}: {command['reason']}")
        return {"state": self.state()}

    def _rollback(self, command: Json) -> Json:
        trainer = self.require_trainer(command)
        self.rollbacks.add(trainer.name, command)
        return {}

    def _take_over(self, _: Json) -> Json:
        self._takeover.begin()
        self._checkpoints.revoke_any()
        return {"generation": self.generation}

    def _release(self, trainer: Trainer, trained: dict[str, int]) -> None:
        """Ends all that a trainer has: its leases, and its permission to write a checkpoint."""
        self._leases.end_all(trainer, trained)
        self._checkpoints.revoke(trainer.name)

    # -- queries -----------------------------------------------------------------------------

    @property
    def datasets(self) -> dict[str, Dataset]:
        """The data sets by name, in the order in which they were described."""
        return self._registry.by_name

    @property
    def generation(self) -> int:
        """The number of masters that the job has had, of which each resumed from a snapshot."""
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
        """Why the job failed, or ""."""
        return self._failures.job_reason

    @property
    def failures(self) -> list[Json]:
        """The newest reports of failed tasks."""
        return self._failures.newest

    @property
    def dropped(self) -> list[Json]:
        """Tasks that failed too often, with the last error."""
        return self._failures.dropped

    @property
    def lost_records(self) -> int:
        """Records that were trained, but not acknowledged when the lease ended: trained again."""
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
        """The newest version of a checkpoint that was granted or reported."""
        return self._checkpoints.versions

    @property
    def complete(self) -> bool:
        """Whether all data sets are done, see `TaskQueue.complete`."""
        return self._queue.complete

    def directive(self) -> str:
        """The instruction in answers to heartbeats and joins: "work" or "stop"."""
        return "stop" if self.failed else "work"

    def state(self) -> str:
        """The job's state: "waiting" for a data set, "working", "done" or "failed"."""
        if self.failed:
            return "failed"
        if self.complete:
            return "done"
        return "working" if self.datasets else "waiting"

    def has_answer_for(self, scope: Json) -> bool:
        """Whether a waiting call would get an answer other than "wait" now."""
        if self._state_of(scope, leased=False) != "wait":
            return True
        return self._grants and self._queue.next(scope) is not None

    def holds_lease(self, task: str, attempt: int, trainer: str) -> bool:
        """Whether a trainer holds exactly this lease."""
        return self._leases.holds(trainer, task, attempt)

    def require_trainer(self, command: Json) -> Trainer:
        """The trainer that calls.

        Raises:
            RefusedError: 404 for one that has not joined, 409 for one that was replaced.
        """
        name = command["trainer"]
        trainer = self.trainers.find(name)
        if trainer is None or name in self.settling:
            raise RefusedError(404, f"{name} has not joined: join first", "trainer")
        if trainer.incarnation != command["incarnation"]:
            raise RefusedError(
                409, f"{name} was restarted: another process has this name", "incarnation"
            )
        return trainer

    @property
    def _grants(self) -> bool:
        """Whether tasks are leased at all: not of a failed job, nor before all have joined again."""
        return not self.failed and not self.settling

    def _state_of(self, scope: Json, *, leased: bool) -> str:
        """The state in the answer to a call for work."""
        if self.failed:
            return "stop"
        if leased:
            return "work"
        return "done" if self._queue.is_over(scope) else "wait"

    # -- snapshots ---------------------------------------------------------------------------

    def dump(self) -> Json:
        """The whole ledger as JSON, some kilobytes however large the data; see `load`."""
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
        self._leases.load(dumped)
        self._takeover.load(dumped)
        self._checkpoints.load(dumped)


def _lost_with_process(join: Json, trainer: Trainer) -> dict[str, int]:
    """Trained records of a replaced process, without tasks that the next one holds or reports."""
    entries = (*join.get("held", ()), *join.get("done", ()))
    reported = {entry["task"]: entry["attempt"] for entry in entries}
    trained: dict[str, int] = join.get("trained", {})
    return {t: n for t, n in trained.items() if trainer.leases.get(t, -1) != reported.get(t)}
