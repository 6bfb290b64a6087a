"""The books of one job: who has which task, what is done, who saves. Pure, and without a clock.

Every change is a command: a small JSON object. The same commands in the same order always give
the same books and the same answers, so a journal of commands is enough to have them again
(decision 0007). A command that is refused changes nothing.
"""

from collections.abc import Callable, Iterator
from typing import Any

from master.bounds import capped
from master.dataset import EVALUATION, EXPORT, TRAINING, Dataset
from master.epoch import Epoch
from master.errors import RefusedError
from master.members import Members, Trainer
from master.setbacks import Setbacks

Json = dict[str, Any]

VERSION = 1
"""Of the books' form; others are refused."""
ACCEPTED, STALE, UNKNOWN = "accepted", "stale", "unknown"
MOST_DROPPED = 16
"""Tasks that may be dropped before the job fails, unless told otherwise."""
_GENERATION_ATTEMPTS = 1 << 20
"""A new master's attempts are greater than any that the one before may have given."""
MOST_ATTEMPT = 1 << 52
"""Of a lease that is taken over from a master before: later attempts of the task are greater, and
trainers must be able to tell them, up to 2^53."""
_MOST_FAILURES = 20
_FIRST = {EVALUATION: 0, EXPORT: 2}
"""Evaluations come first, because somebody waits for them; the export comes last."""


class Ledger:
    """Not thread-safe; `execute` is the only way to change it."""

    def __init__(
        self, job: str, *, most_dropped: int = MOST_DROPPED, max_steps: int | None = None
    ) -> None:
        """Opens empty books.

        Args:
            job: The job's name.
            most_dropped: More dropped tasks than this fail the job.
            max_steps: Steps of all trainers together after which training ends.
        """
        self.job = job
        self.most_dropped = most_dropped
        self.max_steps = max_steps
        self.generation = 1
        self.datasets: dict[str, Dataset] = {}
        self.members = Members()
        self.steps = 0
        self.failed = ""
        """Why the job failed, or ""."""
        self.lost_records = 0
        """Trained, but not acknowledged when the lease ended: they are trained again."""
        self.trained_again_records = 0
        """Acknowledged by two trainers, because two masters gave the task out."""
        self.settling: set[str] = set()
        """Trainers of the master before that have not joined this one yet."""
        self.checkpoint: Json | None = None
        self.saving: Json | None = None
        self.versions = 0
        self.setbacks = Setbacks()
        """Work that was lost with the model's state."""
        self.failures: list[Json] = []
        """The newest reports of tasks that failed, for the status."""
        self.dropped: list[Json] = []
        """Tasks that failed too often, with the last error; never more than fail the job."""
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
            "setback": self._setback,
            "takeover": self._takeover,
        }

    # -- commands ----------------------------------------------------------------------------

    def execute(self, command: Json) -> Json:
        """Carries a command out and returns the answer.

        Raises:
            RefusedError: It cannot be carried out; nothing has changed.
        """
        return self._commands[command["do"]](command)

    def _join(self, command: Json) -> Json:
        name, incarnation = command["trainer"], command["incarnation"]
        lead = command.get("lead")
        led = {} if lead is None else {"term": self._lead(incarnation, lead)}
        known = self.members.find(name)
        if known is None or known.incarnation != incarnation:
            saving = self.saving
            if known is not None:
                self._release(known, _without_kept(command, known))
            if led:
                self.saving = saving  # who led before may still write what the group had
            known = self.members.add(name, incarnation)
        rejoins = name in self.settling
        self.settling.discard(name)
        for entry in command.get("done", ()):
            self._book_late(known, entry)
        held = command.get("held", ())
        lost = [one["task"] for one in held if not self._hold(known, one)]
        if rejoins:
            told = {one["task"] for one in held}
            for task in [task for task in known.held if task not in told]:
                self._give_back(known, task)
        return {"lost": lost, "state": self.word(), **led}

    def _term(self, command: Json) -> Json:
        """Whoever leads begins the next term: its group goes on with other members."""
        trainer = self.known(command)
        return {"term": self._lead(trainer.incarnation, {**command, "begins": True})}

    def _describe(self, command: Json) -> Json:
        name, shape = command["name"], command["shape"]
        found = self.datasets.get(name)
        if found is None:
            found = self.datasets[name] = Dataset(name, shape)
        for key, value in found.shape.items():
            if shape.get(key) != value:
                raise RefusedError(
                    409,
                    f"{name} is described already, with {key} {value!r:.60}: describe it alike, or "
                    "give the other data set another name",
                    key,
                )
        return {"name": name, **found.shape}

    def _work(self, command: Json) -> Json:
        trainer = self.known(command)
        call = command.get("call")
        if call is not None and trainer.answer is not None and call <= trainer.call:
            if call == trainer.call:
                return trainer.answer
            raise RefusedError(409, f"call {call} comes after call {trainer.call}", "call")
        results = [
            *(self._done(trainer, entry) for entry in command.get("done", ())),
            *(self._fail(trainer, entry) for entry in command.get("failed", ())),
            *(self._back(trainer, entry) for entry in command.get("back", ())),
        ]
        answer = {"results": results, **self._leases(trainer, command)}
        if call is not None:
            trainer.call, trainer.answer = call, answer
        return answer

    def _more(self, command: Json) -> Json:
        """A call for work that waited: its answer gets the tasks that are free now."""
        trainer = self.known(command)
        call = command.get("call")
        if call is not None and call < trainer.call:
            return {"results": [], "tasks": [], "state": "wait"}  # nobody listens to it any more
        if call == trainer.call and trainer.answer is not None and trainer.answer["tasks"]:
            return trainer.answer  # the same call came twice, and both waited
        answer = {"results": [], **self._leases(trainer, command)}
        if call is not None:
            trainer.call, trainer.answer = call, answer
        return answer

    def _leave(self, command: Json) -> Json:
        trainer = self.known(command)
        self._release(trainer, command.get("trained", {}))
        self.members.remove(trainer.name)
        return {}

    def _expire(self, command: Json) -> Json:
        """What liveness decided: trainers gone or stuck, leases that nobody knows of."""
        for name, trained in command.get("trainers", {}).items():
            gone = self.members.find(name)
            if gone is not None:
                self._release(gone, trained)
                self.members.remove(name)
                self.settling.discard(name)
        for name, trained in command.get("stuck", {}).items():
            stuck = self.members.find(name)
            if stuck is not None:
                self._release(stuck, trained)
        for name, tasks in command.get("leaked", {}).items():
            forgetful = self.members.find(name)
            if forgetful is not None:
                for task in [task for task in tasks if task in forgetful.held]:
                    self._give_back(forgetful, task)
        return {}

    def _settle(self, _: Json) -> Json:
        """Those that did not come to the new master are gone."""
        return self._expire({"trainers": {name: {} for name in sorted(self.settling)}})

    def _save(self, command: Json) -> Json:
        trainer = self.known(command)
        if self.saving is not None and self.saving["trainer"] != trainer.name:
            return {"granted": False, "ticket": "", "version": self.saving["version"]}
        # later tickets have greater versions, whoever asked for them and whenever they are used
        self.versions = max(self.versions, command.get("newest", 0)) + 1
        ticket = f"{self.generation}-{self.versions}"
        self.saving = {"trainer": trainer.name, "ticket": ticket, "version": self.versions}
        return {"granted": True, "ticket": ticket, "version": self.versions}

    def _saved(self, command: Json) -> Json:
        saving = self.saving
        if saving is None or saving["ticket"] != command["ticket"]:
            raise RefusedError(
                404, f"ticket {command['ticket']!r:.40} is over: ask for another", "ticket"
            )
        self.saving = None
        if command["ok"]:
            kept = {name: command[name] for name in ("path", "step")}
            self.checkpoint = {"version": saving["version"], "by": saving["trainer"], **kept}
        return {}

    def _evaluate(self, command: Json) -> Json:
        found = self.datasets.get(command["dataset"])
        if found is None or found.kind != EVALUATION:
            raise RefusedError(
                404,
                f"{command['dataset']!r:.60} is no data set for evaluation: describe it with kind evaluation first",
                "dataset",
            )
        found.ask(command["model_version"])
        return {"model_version": command["model_version"], "dataset": found.name}

    def _fail_job(self, command: Json) -> Json:
        """A trainer says that the job cannot succeed; the first reason stays."""
        trainer = self.known(command)
        if self.state() not in ("done", "failed"):
            self.failed = f"{trainer.name}: {command['reason']}"
        return {"state": self.state()}

    def _setback(self, command: Json) -> Json:
        trainer = self.known(command)
        self.setbacks.add(trainer.name, command)
        return {}

    def _takeover(self, _: Json) -> Json:
        """Another master goes on from a snapshot: trainers are to join it."""
        self.generation += 1
        self.settling = {trainer.name for trainer in self.members}
        self.saving = None
        for trainer in self.members:
            trainer.forget_calls()
        return {"generation": self.generation}

    # -- questions ---------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether all data sets are done, as far as there are steps for them.

        One that is there for evaluations nobody has asked for makes no job.
        """
        some = any(one.epochs for one in self.datasets.values())
        return some and all(self._over(one) for one in self.datasets.values())

    @property
    def enough(self) -> bool:
        """Whether training had its steps, whatever data is left."""
        return self.max_steps is not None and self.steps >= self.max_steps

    def word(self) -> str:
        """What trainers are to do, as heartbeats and joins tell them: "work" or "stop"."""
        return "stop" if self.failed else "work"

    def state(self) -> str:
        """The job's: "waiting" for a data set, "working", "done" or "failed"."""
        if self.failed:
            return "failed"
        if self.complete:
            return "done"
        return "working" if self.datasets else "waiting"

    def has_for(self, scope: Json) -> bool:
        """Whether a call that waits would get an answer other than "wait" now."""
        return self._word_of(scope, found=False) != "wait" or self._next(scope) is not None

    def holder(self, task: str, attempt: int, trainer: str) -> bool:
        """Whether a trainer has that very lease."""
        found = self._find(task)
        if found is None:
            return False
        held = found[1].outstanding.get(found[2])
        return held is not None and held.holder == trainer and held.attempt == attempt

    def known(self, command: Json) -> Trainer:
        """Who calls.

        Raises:
            RefusedError: 404 for one that has not joined, 409 for one that was replaced.
        """
        name = command["trainer"]
        found = self.members.find(name)
        if found is None or name in self.settling:
            raise RefusedError(404, f"{name} has not joined: join first", "trainer")
        if found.incarnation != command["incarnation"]:
            raise RefusedError(
                409, f"{name} was started anew: another process has this name", "incarnation"
            )
        return found

    # -- inside ------------------------------------------------------------------------------

    def _lead(self, incarnation: str, lead: Json) -> int:
        """The term in which a process leads from now on.

        Raises:
            RefusedError: Its model is not the newest, or another leads.
        """
        found = self.datasets.get(lead["dataset"])
        if found is None:
            raise RefusedError(
                404, f"{lead['dataset']!r:.60} is no data set: describe it first", "dataset"
            )
        act = found.terms.begin if lead["begins"] else found.terms.resume
        return act(incarnation, lead["term"])

    def _scope(self, scope: Json) -> Iterator[Dataset]:
        """Data sets that a call asks for, in the order in which they are served."""
        kinds, names = scope.get("kinds"), scope.get("datasets")
        found = [
            one
            for one in self.datasets.values()
            if (kinds is None or one.kind in kinds) and (names is None or one.name in names)
        ]
        return iter(sorted(found, key=lambda one: _FIRST.get(one.kind, 1)))

    def _next(self, scope: Json) -> Dataset | None:
        """Which data set the next task would come from."""
        if self.failed or self.settling:
            return None
        for one in self._scope(scope):
            if one.free and self._may_lease(one):
                return one
        return None

    def _may_lease(self, one: Dataset) -> bool:
        """Training ends with its steps; the export waits for everything else."""
        if one.kind == EXPORT:
            others = (other for other in self.datasets.values() if other.kind != EXPORT)
            return all(self._over(other) for other in others)
        return one.kind != TRAINING or not self.enough

    def _over(self, one: Dataset) -> bool:
        """Whether nothing of a data set is leased, and nothing will be."""
        ended = self.enough and one.kind == TRAINING and not one.leased
        return ended or one.complete

    def _leases(self, trainer: Trainer, command: Json) -> Json:
        base = (self.generation - 1) * _GENERATION_ATTEMPTS
        want: int = command.get("want", 0)
        tasks: list[Json] = []
        while len(tasks) < want and (source := self._next(command)) is not None:
            for lease in source.lease(trainer.name, base, want - len(tasks)):
                trainer.held[lease["task"]] = lease["attempt"]
                tasks.append(lease)
        return {"tasks": tasks, "state": self._word_of(command, found=bool(tasks))}

    def _word_of(self, scope: Json, *, found: bool) -> str:
        if self.failed:
            return "stop"
        if found:
            return "work"
        if all(self._over(one) or not self._may_wait(one) for one in self._scope(scope)):
            return "done"
        return "wait"

    def _may_wait(self, one: Dataset) -> bool:
        """Whether tasks of it may be free later: not of training that had its steps."""
        return one.kind != TRAINING or not self.enough

    def _find(self, task: str) -> tuple[Dataset, Epoch, int] | None:
        """The place of a task in an epoch that is open; None for all others."""
        name, _, rest = task.partition("/")
        number, _, index = rest.partition("/")
        dataset = self.datasets.get(name)
        if dataset is None or not (number.isdecimal() and index.isdecimal()):
            return None
        epoch = dataset.open.get(int(number))
        if epoch is None or not epoch.exists(int(index)):
            return None
        return dataset, epoch, int(index)

    def _exists(self, task: str) -> bool:
        """Whether it is a task of any epoch, begun or not."""
        name, _, rest = task.partition("/")
        number, _, index = rest.partition("/")
        dataset = self.datasets.get(name)
        if dataset is None or not (number.isdecimal() and index.isdecimal()):
            return False
        return int(number) < dataset.epochs and dataset.cutting.has(int(index))

    def _done(self, trainer: Trainer, entry: Json) -> str:
        task, attempt = entry["task"], entry["attempt"]
        if trainer.held.get(task) != attempt:
            if trainer.acked.get(task) == attempt:
                return ACCEPTED
            return STALE if self._exists(task) else UNKNOWN
        self._accept(trainer, entry)
        return ACCEPTED

    def _accept(self, trainer: Trainer, entry: Json) -> None:
        task = entry["task"]
        found = self._find(task)
        if found is None:  # pragma: no cover - what a trainer holds is in an open epoch
            return
        dataset, epoch, index = found
        trainer.held.pop(task, None)
        trainer.acknowledge(task, entry["attempt"])
        records = dataset.accept(epoch, index, entry.get("metrics") or {})
        trainer.records = capped(trainer.records + records)
        trainer.tasks += 1
        self._step(trainer, entry)

    def _step(self, trainer: Trainer, entry: Json) -> None:
        steps = entry.get("steps", 0)
        trainer.steps = capped(trainer.steps + steps)
        self.steps = capped(self.steps + steps)

    def _fail(self, trainer: Trainer, entry: Json) -> str:
        task = entry["task"]
        found = self._find(task)
        if trainer.held.get(task) != entry["attempt"] or found is None:
            return STALE if self._exists(task) else UNKNOWN
        dataset, epoch, index = found
        del trainer.held[task]
        trainer.failures += 1
        record = entry.get("record")
        why = f"record {record}: {entry['error']}" if record is not None else entry["error"]
        dropped = dataset.fail(epoch, index)
        told = {"task": task, "by": trainer.name, "error": why}
        self.failures = [*self.failures[1 - _MOST_FAILURES :], told]
        if dropped:
            self.dropped.append(told)
        if len(self.dropped) > self.most_dropped:
            self.failed = f"{len(self.dropped)} tasks were dropped, the last of them {task}: {why}"
        return ACCEPTED

    def _back(self, trainer: Trainer, entry: Json) -> str:
        if trainer.held.get(entry["task"]) != entry["attempt"]:
            return STALE if self._exists(entry["task"]) else UNKNOWN
        self._give_back(trainer, entry["task"], entry.get("trained", 0))
        return ACCEPTED

    def _give_back(self, trainer: Trainer, task: str, trained: int = 0) -> None:
        del trainer.held[task]
        found = self._find(task)
        if found is not None:
            dataset, epoch, index = found
            epoch.give_back(index)
            lost = min(trained, dataset.span(index).size)
            self.lost_records = capped(self.lost_records + lost)

    def _release(self, trainer: Trainer, trained: dict[str, int]) -> None:
        """Everything a trainer holds is to do again; what it had trained of that is counted."""
        for task in list(trainer.held):
            self._give_back(trainer, task, trained.get(task, 0))
        if self.saving is not None and self.saving["trainer"] == trainer.name:
            self.saving = None

    def _book_late(self, trainer: Trainer, entry: Json) -> None:
        """An acknowledgement that a master before had answered: it holds, whoever has it now."""
        place = self._reach(entry["task"])
        if place is None or _is_done(place):
            self._note_again(trainer, entry)
            return
        dataset, epoch, index = place
        task = epoch.outstanding.get(index)
        if task is not None and task.holder is not None and task.holder != trainer.name:
            holder = self.members.find(task.holder)
            if holder is not None:
                holder.held.pop(entry["task"], None)
                self._count_again(dataset, index)
        epoch.adopt(index, entry["attempt"], trainer.name)
        self._accept(trainer, entry)

    def _note_again(self, trainer: Trainer, entry: Json) -> None:
        """A late acknowledgement of what is done: by that very one, or meanwhile by another."""
        task, attempt = entry["task"], entry["attempt"]
        if not self._exists(task) or trainer.acked.get(task) == attempt:
            return
        if any(one.acked.get(task, attempt) != attempt for one in self.members):
            name, _, index = task.split("/")
            self._count_again(self.datasets[name], int(index))
        trainer.acknowledge(task, attempt)

    def _count_again(self, dataset: Dataset, index: int) -> None:
        """Two trainers have acknowledged a task."""
        size = dataset.span(index).size
        self.trained_again_records = capped(self.trained_again_records + size)

    def _hold(self, trainer: Trainer, entry: Json) -> bool:
        """Whether a trainer may go on with a lease that a master before gave it."""
        task_id, attempt = entry["task"], entry["attempt"]
        if trainer.held.get(task_id) == attempt:
            return True
        place = self._reach(task_id)
        if place is None or _is_done(place) or attempt > MOST_ATTEMPT:
            return False
        _, epoch, index = place
        task = epoch.outstanding.get(index)
        if task is not None and (task.holder is not None or task.attempt > attempt):
            return False
        epoch.adopt(index, attempt, trainer.name)
        trainer.held[task_id] = attempt
        return True

    def _reach(self, task: str) -> tuple[Dataset, Epoch, int] | None:
        """As `_find`, but begins epochs that another master had begun."""
        if not self._exists(task):
            return None
        name, number, _ = task.split("/")
        self.datasets[name].reach(int(number))
        return self._find(task)

    # -- snapshots ---------------------------------------------------------------------------

    def dump(self) -> Json:
        """The whole books as JSON, some kilobytes however large the data; see `load`."""
        return {
            "version": VERSION,
            "job": self.job,
            "generation": self.generation,
            "datasets": {name: one.dump() for name, one in self.datasets.items()},
            "members": self.members.dump(),
            "steps": self.steps,
            "failed": self.failed,
            "lost_records": self.lost_records,
            "trained_again_records": self.trained_again_records,
            "settling": sorted(self.settling),
            "checkpoint": self.checkpoint,
            "saving": self.saving,
            "versions": self.versions,
            "failures": self.failures,
            "dropped": self.dropped,
            "setbacks": self.setbacks.dump(),
        }

    def load(self, dumped: Json) -> None:
        """Goes on from what `dump` wrote."""
        self.generation = dumped["generation"]
        self.datasets = {n: Dataset.load(n, one) for n, one in dumped["datasets"].items()}
        self.members = Members.load(dumped["members"])
        self.steps, self.failed = dumped["steps"], dumped["failed"]
        self.lost_records = dumped["lost_records"]
        self.trained_again_records = dumped["trained_again_records"]
        self.settling = set(dumped["settling"])
        self.checkpoint, self.saving = dumped["checkpoint"], dumped["saving"]
        self.versions, self.failures = dumped["versions"], dumped["failures"]
        self.dropped = dumped["dropped"]
        self.setbacks = Setbacks.load(dumped.get("setbacks"))


def _without_kept(join: Json, known: Trainer) -> dict[str, int]:
    """What is lost with a trainer's process: not what the next one goes on with, or has told."""
    told = {e["task"]: e["attempt"] for e in (*join.get("held", ()), *join.get("done", ()))}
    trained: dict[str, int] = join.get("trained", {})
    return {t: n for t, n in trained.items() if known.held.get(t, -1) != told.get(t)}


def _is_done(place: tuple[Dataset, Epoch, int]) -> bool:
    """Whether a task of an open epoch is done, or dropped."""
    _, epoch, index = place
    return index not in epoch.outstanding and epoch.known(index)
