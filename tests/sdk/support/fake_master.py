"""A master in memory: the protocol's rules in a dict, with no time-outs and no journal.

The SDK is tested against it where a test decides when and how the master answers. The facts in
tests/sdk/support/contract.py hold it to the real master.
"""

import copy
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.sdk.support.fake_rendezvous import FakeRendezvous, OtherError

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
    """A task: records [start, end), and the trainer that holds its lease."""

    id: str
    description: Json
    attempt: int = 0
    holder: str | None = None
    done: int | None = None
    """The attempt that was accepted."""
    accepted: int = 0
    """How often it was accepted as done; more than once is an error."""
    failures: list[Json] = field(default_factory=list)
    dropped: bool = False

    @property
    def over(self) -> bool:
        """Whether nobody will lease it again."""
        return self.done is not None or self.dropped


@dataclass
class Member:
    """A trainer that has joined."""

    incarnation: str
    call: int = 0
    answer: Json | None = None
    beats: int = 0
    trained: int = 0
    has_left: bool = False


@dataclass
class State:
    """The contents of a snapshot."""

    datasets: dict[str, Json] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    checkpoint: Json | None = None
    version: int = 0


class FakeMaster:
    """The state and rules of a master; callers hold `changed`."""

    def __init__(self, job: str = "digits") -> None:
        self.job = job
        self.changed = threading.Condition()
        self.state = State()
        self.members: dict[str, Member] = {}
        self.generation = 1
        self.stopped = False
        self.heartbeat_s = 0.05
        self.saver: tuple[str, str] | None = None
        self.snapshot: State | None = None
        self.safe: dict[str, int] | None = None
        """Trainer -> newest call in the snapshot; None where the journal keeps all."""
        self.rendezvous = FakeRendezvous()
        self.failed = ""
        self.rollbacks: Json = {"count": 0, "steps": 0, "records": 0, "newest": []}
        self.lost: dict[str, tuple[dict[str, int], dict[str, Json]]] = {}
        """Event -> the largest numbers that were reported of it, and shares by holder."""

    # -- what tests do -----------------------------------------------------------------------

    def store_snapshot(self) -> None:
        """Stores a snapshot; from the first one on, only what is in one is safe."""
        with self.changed:
            self.snapshot = copy.deepcopy(self.state)
            self.safe = {name: member.call for name, member in self.members.items()}

    def take_over(self) -> None:
        """Another master starts from the last snapshot, and knows no trainer."""
        with self.changed:
            self.state = copy.deepcopy(self.snapshot) if self.snapshot else State()
            for task in self.state.tasks.values():
                task.holder = None
            self.members, self.safe, self.rendezvous = {}, {}, FakeRendezvous()
            self.generation += 1

    def evict(self, task_id: str) -> None:
        """Ends a lease, as after its time-out: other trainers may lease the task."""
        with self.changed:
            self.state.tasks[task_id].holder = None
            self.changed.notify_all()

    # -- the protocol ------------------------------------------------------------------------

    def join(self, body: Json) -> Json:
        """POST /v1/join."""
        name, incarnation = body["trainer"], body["incarnation"]
        old = self.members.get(name)
        if old is None or old.has_left or old.incarnation != incarnation:
            self._free(name)
            self.members[name] = Member(incarnation)
        for entry in body.get("done", []):
            self._done(name, entry)
        lost = [
            entry["task"] for entry in body.get("held", []) if not self._claim_lease(name, entry)
        ]
        state = "stop" if self.stopped else "work"
        answer = {"job": self.job, "heartbeat_s": self.heartbeat_s, "state": state}
        return {**answer, "generation": self.generation, "lost": lost}

    def describe(self, name: str, body: Json) -> Json:
        """PUT /v1/datasets/{name}."""
        description = self.state.datasets.setdefault(name, body)
        for key in {**description, **body}:
            if description.get(key) != body.get(key):
                raise RefusedError(409, f"{name} is described already, with another {key}", key)
        if not any(task.startswith(f"{name}/") for task in self.state.tasks):
            self._fill(name, 0)
        return description

    def work(self, body: Json) -> tuple[Json, bool]:
        """POST /v1/work: the answer, and whether it is worth to wait for a better one."""
        member = self.member(body)
        if member.answer is not None and body["call"] <= member.call:
            if body["call"] == member.call:
                return member.answer, False
            text = f"call {body['call']} arrives after call {member.call}"
            raise RefusedError(409, text, "call")
        name = body["trainer"]
        results = [
            *(self._done(name, entry) for entry in body["done"]),
            *(self._failed(name, entry) for entry in body["failed"]),
            *(self._hand_back(name, entry) for entry in body["back"]),
        ]
        leases = [self._lease(name, task) for task in self._free_tasks(body)]
        state = self._state_for(body, leased=bool(leases))
        answer = {"results": results, "tasks": leases, "state": state, "again_s": 0.02}
        member.call, member.answer = body["call"], answer
        safe = member.call if self.safe is None else self.safe.get(name, 0)
        answer.update(generation=self.generation, safe=safe)
        waits = state == "wait" and body["want"] > 0 and not results
        return answer, waits

    def after_waiting(self, body: Json, answer: Json) -> Json:
        """The answer to a call that waited; as before if its client has called again since."""
        member = self.member(body)
        if body["call"] < member.call:
            return answer
        member.answer = None
        return self.work(body)[0]

    def heartbeat(self, body: Json) -> Json:
        """POST /v1/heartbeat."""
        member = self.member(body)
        member.beats += 1
        member.trained = sum(entry["trained"] for entry in body["held"])
        lost = [entry["task"] for entry in body["held"] if not self._holds(body["trainer"], entry)]
        return {"lost": lost, "state": "stop" if self.stopped else "work"}

    def leave(self, body: Json) -> Json:
        """POST /v1/leave."""
        member = self.member(body)
        self._free(body["trainer"])
        member.has_left = True
        self._store_last_snapshot()
        return {}

    def request_save(self, body: Json) -> Json:
        """POST /v1/checkpoints."""
        self.member(body)
        if self.saver is not None and self.saver[0] != body["trainer"]:
            return {"granted": False, "ticket": "", "version": 0, "again_s": 0.05}
        version = self.state.version = max(self.state.version, body.get("newest", 0)) + 1
        self.saver = (body["trainer"], f"save-{version}")
        return {"granted": True, "ticket": self.saver[1], "version": version}

    def report_saved(self, ticket: str, body: Json) -> Json:
        """PUT /v1/checkpoints/{ticket}."""
        if self.saver is None or self.saver[1] != ticket:
            raise RefusedError(404, f"there is no ticket {ticket}", "ticket")
        self.saver = None
        if body.get("ok", True):
            self.state.checkpoint = {"step": 0, **body, "version": self.state.version}
        return {}

    def poll_rendezvous(self, body: Json) -> Json:
        """POST /v1/rendezvous, on a server that holds `changed`: waits for news."""
        try:
            self.rendezvous.call(body)
        except OtherError as error:
            raise RefusedError(409, str(error), error.named) from error
        self.changed.notify_all()
        self.changed.wait_for(lambda: self.rendezvous.due(body), body["wait_s"])
        return self.rendezvous.answer(body)

    def fail(self, body: Json) -> Json:
        """POST /v1/fail."""
        self.member(body)
        self.failed = self.failed or f"{body['trainer']}: {body['reason']}"
        self.stopped = True
        return {"state": "failed"}

    def report_rollback(self, body: Json) -> Json:
        """POST /v1/setbacks."""
        self.member(body)
        newest, event = self.rollbacks["newest"], body["event"]
        rollback = next((entry for entry in newest if entry["event"] == event), None)
        if rollback is None:
            rollback = {"by": body["trainer"], "event": event, "reason": body["reason"]}
            self.rollbacks["count"] += 1
            newest.append(rollback)
            rollback.update(steps=0, records=0)
        most, shares = self.lost.setdefault(event, ({"steps": 0, "records": 0}, {}))
        if "share" in body:
            shares[body["share"]["holder"]] = body["share"]
        for unit in most:
            most[unit] = max(most[unit], body.get(unit, 0))
            own = sum(share.get(unit, 0) for share in shares.values())
            pending = sum(share.get(f"pending_{unit}", 0) for share in shares.values())
            lost = max(own, most[unit] - pending)
            self.rollbacks[unit] += lost - rollback[unit]
            rollback[unit] = lost
        return {}

    def status(self) -> Json:
        """GET /v1/status."""
        return {
            "job": self.job,
            "state": "failed" if self.failed else "work",
            "reason": self.failed,
            "setbacks": self.rollbacks,
            "datasets": {name: self._progress(name) for name in self.state.datasets},
            "trainers": {
                name: {"records": member.trained} for name, member in self.members.items()
            },
            "checkpoint": self.state.checkpoint,
        }

    def member(self, body: Json) -> Member:
        """The trainer that calls."""
        member = self.members.get(body["trainer"])
        if member is None or member.has_left:
            raise RefusedError(404, f"{body['trainer']} has not joined", "trainer")
        if member.incarnation != body["incarnation"]:
            raise RefusedError(409, f"{body['trainer']} was started anew", "incarnation")
        return member

    # -- inside ------------------------------------------------------------------------------

    def _fill(self, name: str, epoch: int) -> None:
        about = self.state.datasets[name]
        for index, part in enumerate(_parts(about)):
            task = Task(f"{name}/{epoch}/{index}", {**part, "epoch": epoch})
            task.description.update(kind=about["kind"], dataset=name, task=task.id)
            if about["kind"] == "evaluation":
                task.description["model_version"] = 7
            self.state.tasks[task.id] = task

    def _free_tasks(self, body: Json) -> list[Task]:
        in_scope = list(self._in_scope(body))
        names = {task.description["dataset"] for task in in_scope}
        for name in names:
            tasks = [task for task in in_scope if task.description["dataset"] == name]
            epoch = max(task.description["epoch"] for task in tasks)
            if all(task.over for task in tasks) and epoch + 1 < self._epochs(name):
                self._fill(name, epoch + 1)
        free = [task for task in self._in_scope(body) if task.holder is None and not task.over]
        return free[: body["want"]]

    def _epochs(self, name: str) -> int:
        epochs: int = self.state.datasets[name]["epochs"]
        return epochs

    def _in_scope(self, body: Json) -> Iterator[Task]:
        kinds, names = body.get("kinds"), body.get("datasets")
        for task in list(self.state.tasks.values()):
            if kinds is not None and task.description["kind"] not in kinds:
                continue
            if names is None or task.description["dataset"] in names:
                yield task

    def _state_for(self, body: Json, *, leased: bool) -> str:
        if self.stopped:
            return "stop"
        if leased:
            return "work"
        if not all(task.over for task in self._in_scope(body)):
            return "wait"
        self._store_last_snapshot()
        return "done"

    def _store_last_snapshot(self) -> None:
        """Stores a snapshot before a trainer leaves: it can report nothing to another master."""
        if self.safe is not None:
            self.store_snapshot()

    def _lease(self, name: str, task: Task) -> Json:
        task.attempt += 1
        task.holder = name
        return {**task.description, "attempt": task.attempt, "lease_s": 60.0}

    def _holds(self, name: str, entry: Json) -> bool:
        task = self.state.tasks.get(entry["task"])
        return task is not None and task.holder == name and task.attempt == entry["attempt"]

    def _claim_lease(self, name: str, entry: Json) -> bool:
        task = self.state.tasks.get(entry["task"])
        if task is None or task.over or task.attempt > entry["attempt"] or task.holder:
            return self._holds(name, entry)
        task.attempt, task.holder = entry["attempt"], name
        return True

    def _done(self, name: str, entry: Json) -> str:
        task = self.state.tasks.get(entry["task"])
        if task is None:
            return "unknown"
        if task.done == entry["attempt"]:
            return "accepted"
        if not self._holds(name, entry) and not self._claim_lease(name, entry):
            return "stale"
        task.done, task.holder = entry["attempt"], None
        task.accepted += 1
        return "accepted"

    def _failed(self, name: str, entry: Json) -> str:
        if not self._holds(name, entry):
            return "stale"
        task = self.state.tasks[entry["task"]]
        task.failures.append(entry)
        task.holder = None
        task.dropped = len(task.failures) >= BUDGET
        return "accepted"

    def _hand_back(self, name: str, entry: Json) -> str:
        if not self._holds(name, entry):
            return "stale"
        self.state.tasks[entry["task"]].holder = None
        return "accepted"

    def _free(self, name: str) -> None:
        for task in self.state.tasks.values():
            if task.holder == name:
                task.holder = None

    def _progress(self, name: str) -> Json:
        tasks = [task for task in self.state.tasks.values() if task.description["dataset"] == name]
        done = sum(
            task.description["end"] - task.description["start"] for task in tasks if task.done
        )
        return {"done_records": done}


def _parts(about: Json) -> Iterator[Json]:
    if "files" in about:
        pieces = [(file["name"], file["records"]) for file in about["files"]]
    else:
        pieces = [(None, about["records"])]
    step = about["task_records"]
    for file, size in pieces:
        for start in range(0, size, step):
            yield {"start": start, "end": min(size, start + step), "file": file}
