"""A master in memory: the protocol's rules in a dict, with no time-outs and no journal.

What the SDK is tested against where a test must decide when the master answers, and how. It is
held to the real master by tests/sdk/contract.py.
"""

import copy
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.sdk.meetings import Meeting, OtherError

Json = dict[str, Any]
BUDGET = 3


class RefusedError(Exception):
    """An answer of 400 to 499."""

    def __init__(self, status: int, message: str, named: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.named = named


@dataclass
class Task:
    """Records [start, end) and who has them."""

    id: str
    shown: Json
    attempt: int = 0
    holder: str | None = None
    done: int | None = None
    """The attempt that was accepted."""
    accepted: int = 0
    """How often a done of it was booked: once, or the books are wrong."""
    failures: list[Json] = field(default_factory=list)
    dropped: bool = False

    @property
    def over(self) -> bool:
        """Whether nobody will lease it again."""
        return self.done is not None or self.dropped


@dataclass
class Member:
    """A trainer."""

    incarnation: str
    call: int = 0
    answer: Json | None = None
    beats: int = 0
    trained: int = 0
    left: bool = False


@dataclass
class State:
    """What a snapshot holds."""

    datasets: dict[str, Json] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    checkpoint: Json | None = None
    version: int = 0


class Books:
    """Thread-safe through `changed`, which callers hold."""

    def __init__(self, job: str = "digits") -> None:
        self.job = job
        self.changed = threading.Condition()
        self.state = State()
        self.members: dict[str, Member] = {}
        self.generation = 1
        self.stopped = False
        self.heartbeat_s = 0.05
        self.saver: tuple[str, str] | None = None
        self.kept: State | None = None
        self.safe: dict[str, int] | None = None
        """Trainer -> newest call in the snapshot; None where the journal keeps all."""
        self.meeting = Meeting()
        self.failed = ""
        self.setbacks: Json = {"count": 0, "steps": 0, "records": 0, "newest": []}
        self.lost: dict[str, tuple[dict[str, int], dict[str, Json]]] = {}
        """Event -> the most that was told of it, and shares by holder."""

    # -- what tests do -----------------------------------------------------------------------

    def keep(self) -> None:
        """Stores a snapshot; from the first one on, only what is in one is safe."""
        with self.changed:
            self.kept = copy.deepcopy(self.state)
            self.safe = {name: member.call for name, member in self.members.items()}

    def take_over(self) -> None:
        """Another master starts from the last snapshot, and knows no trainer."""
        with self.changed:
            self.state = copy.deepcopy(self.kept) if self.kept else State()
            for task in self.state.tasks.values():
                task.holder = None
            self.members, self.safe, self.meeting = {}, {}, Meeting()
            self.generation += 1

    def evict(self, task_id: str) -> None:
        """A lease's time is over: the task is for others."""
        with self.changed:
            self.state.tasks[task_id].holder = None
            self.changed.notify_all()

    # -- the protocol ------------------------------------------------------------------------

    def join(self, body: Json) -> Json:
        """POST /v1/join."""
        name, incarnation = body["trainer"], body["incarnation"]
        old = self.members.get(name)
        if old is None or old.left or old.incarnation != incarnation:
            self._free(name)
            self.members[name] = Member(incarnation)
        for entry in body.get("done", []):
            self._done(name, entry)
        lost = [one["task"] for one in body.get("held", []) if not self._hold(name, one)]
        state = "stop" if self.stopped else "work"
        answer = {"job": self.job, "heartbeat_s": self.heartbeat_s, "state": state}
        return {**answer, "generation": self.generation, "lost": lost}

    def describe(self, name: str, body: Json) -> Json:
        """PUT /v1/datasets/{name}."""
        found = self.state.datasets.setdefault(name, body)
        for key in {**found, **body}:
            if found.get(key) != body.get(key):
                raise RefusedError(409, f"{name} is described already, with another {key}", key)
        if not any(task.startswith(f"{name}/") for task in self.state.tasks):
            self._fill(name, 0)
        return found

    def work(self, body: Json) -> tuple[Json, bool]:
        """POST /v1/work: the answer, and whether it is worth to wait for a better one."""
        member = self.member(body)
        if member.answer is not None and body["call"] == member.call:
            return member.answer, False
        name = body["trainer"]
        results = [
            *(self._done(name, entry) for entry in body["done"]),
            *(self._failed(name, entry) for entry in body["failed"]),
            *(self._back(name, entry) for entry in body["back"]),
        ]
        leases = [self._lease(name, task) for task in self._free_tasks(body)]
        state = self._word(body, found=bool(leases))
        answer = {"results": results, "tasks": leases, "state": state, "again_s": 0.02}
        member.call, member.answer = body["call"], answer
        safe = member.call if self.safe is None else self.safe.get(name, 0)
        answer.update(generation=self.generation, safe=safe)
        waits = state == "wait" and body["want"] > 0 and not results
        return answer, waits

    def forget_answer(self, body: Json) -> None:
        """A call that waited is to be answered anew."""
        self.member(body).answer = None

    def heartbeat(self, body: Json) -> Json:
        """POST /v1/heartbeat."""
        member = self.member(body)
        member.beats += 1
        member.trained = sum(one["trained"] for one in body["held"])
        lost = [one["task"] for one in body["held"] if not self._has(body["trainer"], one)]
        return {"lost": lost, "state": "stop" if self.stopped else "work"}

    def leave(self, body: Json) -> Json:
        """POST /v1/leave."""
        member = self.member(body)
        self._free(body["trainer"])
        member.left = True
        self._keep_last()
        return {}

    def ask_to_save(self, body: Json) -> Json:
        """POST /v1/checkpoints."""
        self.member(body)
        if self.saver is not None and self.saver[0] != body["trainer"]:
            return {"granted": False, "ticket": "", "version": 0, "again_s": 0.05}
        version = self.state.version = max(self.state.version, body.get("newest", 0)) + 1
        self.saver = (body["trainer"], f"save-{version}")
        return {"granted": True, "ticket": self.saver[1], "version": version}

    def saved(self, ticket: str, body: Json) -> Json:
        """PUT /v1/checkpoints/{ticket}."""
        if self.saver is None or self.saver[1] != ticket:
            raise RefusedError(404, f"there is no ticket {ticket}", "ticket")
        self.saver = None
        if body["ok"]:
            self.state.checkpoint = {**body, "version": self.state.version}
        return {}

    def meet(self, body: Json) -> Json:
        """POST /v1/rendezvous, on a server that holds `changed`: waits for news."""
        try:
            self.meeting.call(body)
        except OtherError as error:
            raise RefusedError(409, str(error), error.named) from error
        self.changed.notify_all()
        self.changed.wait_for(lambda: self.meeting.due(body), body["wait_s"])
        return self.meeting.answer(body)

    def fail(self, body: Json) -> Json:
        """POST /v1/fail."""
        self.member(body)
        self.failed = self.failed or f"{body['trainer']}: {body['reason']}"
        self.stopped = True
        return {"state": "failed"}

    def setback(self, body: Json) -> Json:
        """POST /v1/setbacks."""
        self.member(body)
        newest, event = self.setbacks["newest"], body["event"]
        known = next((one for one in newest if one["event"] == event), None)
        if known is None:
            known = {"by": body["trainer"], "event": event, "reason": body["reason"]}
            self.setbacks["count"] += 1
            newest.append(known)
            known.update(steps=0, records=0)
        most, shares = self.lost.setdefault(event, ({"steps": 0, "records": 0}, {}))
        if "share" in body:
            shares[body["share"]["holder"]] = body["share"]
        for unit in most:
            most[unit] = max(most[unit], body[unit])
            own = sum(one[unit] for one in shares.values())
            pending = sum(one[f"pending_{unit}"] for one in shares.values())
            lost = max(own, most[unit] - pending)
            self.setbacks[unit] += lost - known[unit]
            known[unit] = lost
        return {}

    def status(self) -> Json:
        """GET /v1/status."""
        return {
            "job": self.job,
            "state": "failed" if self.failed else "work",
            "reason": self.failed,
            "setbacks": self.setbacks,
            "datasets": {name: self._progress(name) for name in self.state.datasets},
            "trainers": {name: {"records": one.trained} for name, one in self.members.items()},
            "checkpoint": self.state.checkpoint,
        }

    def member(self, body: Json) -> Member:
        """Who calls."""
        member = self.members.get(body["trainer"])
        if member is None or member.left:
            raise RefusedError(404, f"{body['trainer']} has not joined", "trainer")
        if member.incarnation != body["incarnation"]:
            raise RefusedError(409, f"{body['trainer']} was started anew", "incarnation")
        return member

    # -- inside ------------------------------------------------------------------------------

    def _fill(self, name: str, epoch: int) -> None:
        about = self.state.datasets[name]
        for index, part in enumerate(_parts(about)):
            task = Task(f"{name}/{epoch}/{index}", {**part, "epoch": epoch})
            task.shown.update(kind=about["kind"], dataset=name, task=task.id)
            if about["kind"] == "evaluation":
                task.shown["model_version"] = 7
            self.state.tasks[task.id] = task

    def _free_tasks(self, body: Json) -> list[Task]:
        mine = list(self._asked(body))
        names = {task.shown["dataset"] for task in mine}
        for name in names:
            tasks = [task for task in mine if task.shown["dataset"] == name]
            epoch = max(task.shown["epoch"] for task in tasks)
            if all(task.over for task in tasks) and epoch + 1 < self._epochs(name):
                self._fill(name, epoch + 1)
        free = [task for task in self._asked(body) if task.holder is None and not task.over]
        return free[: body["want"]]

    def _epochs(self, name: str) -> int:
        found: int = self.state.datasets[name]["epochs"]
        return found

    def _asked(self, body: Json) -> Iterator[Task]:
        kinds, names = body.get("kinds"), body.get("datasets")
        for task in list(self.state.tasks.values()):
            if kinds is not None and task.shown["kind"] not in kinds:
                continue
            if names is None or task.shown["dataset"] in names:
                yield task

    def _word(self, body: Json, *, found: bool) -> str:
        if self.stopped:
            return "stop"
        if found:
            return "work"
        if not all(task.over for task in self._asked(body)):
            return "wait"
        self._keep_last()
        return "done"

    def _keep_last(self) -> None:
        """Who has gone can tell another master nothing: what it did must be kept before."""
        if self.safe is not None:
            self.keep()

    def _lease(self, name: str, task: Task) -> Json:
        task.attempt += 1
        task.holder = name
        return {**task.shown, "attempt": task.attempt, "lease_s": 60.0}

    def _has(self, name: str, entry: Json) -> bool:
        task = self.state.tasks.get(entry["task"])
        return task is not None and task.holder == name and task.attempt == entry["attempt"]

    def _hold(self, name: str, entry: Json) -> bool:
        task = self.state.tasks.get(entry["task"])
        if task is None or task.over or task.attempt > entry["attempt"] or task.holder:
            return self._has(name, entry)
        task.attempt, task.holder = entry["attempt"], name
        return True

    def _done(self, name: str, entry: Json) -> str:
        task = self.state.tasks.get(entry["task"])
        if task is None:
            return "unknown"
        if task.done == entry["attempt"]:
            return "accepted"
        if not self._has(name, entry) and not self._hold(name, entry):
            return "stale"
        task.done, task.holder = entry["attempt"], None
        task.accepted += 1
        return "accepted"

    def _failed(self, name: str, entry: Json) -> str:
        if not self._has(name, entry):
            return "stale"
        task = self.state.tasks[entry["task"]]
        task.failures.append(entry)
        task.holder = None
        task.dropped = len(task.failures) >= BUDGET
        return "accepted"

    def _back(self, name: str, entry: Json) -> str:
        if not self._has(name, entry):
            return "stale"
        self.state.tasks[entry["task"]].holder = None
        return "accepted"

    def _free(self, name: str) -> None:
        for task in self.state.tasks.values():
            if task.holder == name:
                task.holder = None

    def _progress(self, name: str) -> Json:
        tasks = [task for task in self.state.tasks.values() if task.shown["dataset"] == name]
        done = sum(task.shown["end"] - task.shown["start"] for task in tasks if task.done)
        return {"done_records": done}


def _parts(about: Json) -> Iterator[Json]:
    if "files" in about:
        pieces = [(one["name"], one["records"]) for one in about["files"]]
    else:
        pieces = [(None, about["records"])]
    step = about["task_records"]
    for file, size in pieces:
        for start in range(0, size, step):
            yield {"start": start, "end": min(size, start + step), "file": file}
