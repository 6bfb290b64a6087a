"""The contract between SDK and master: facts that hold for the fake and for the real master."""

import http.client
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

Json = dict[str, Any]
NUMBERS: Json = {
    "records": 40,
    "task_records": 10,
    "epochs": 1,
    "shuffle_seed": None,
    "kind": "training",
    "overlap": False,
}


@dataclass(frozen=True)
class Master:
    """A master under contract."""

    port: int
    token: str

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        """Status and body of an answer."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            link.request(method, path, None if body is None else json.dumps(body), headers)
            answer = link.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            link.close()

    def join(self, trainer: str, **fields: Any) -> "Trainer":
        """A trainer that has joined."""
        caller = Trainer(self, {"trainer": trainer, "incarnation": f"{trainer}-1"})
        caller.join_response = caller.ok("POST", "/v1/join", **fields)
        return caller

    def describe(self, name: str = "train", **changes: Any) -> tuple[int, Json]:
        """Describes a data set of 40 records in 4 tasks."""
        return self.ask("PUT", f"/v1/datasets/{name}", {**NUMBERS, **changes})


class Trainer:
    """A trainer that makes the calls of one incarnation."""

    def __init__(self, master: Master, who: Json) -> None:
        self.master, self.who = master, who
        self.calls = 0
        self.join_response: Json = {}

    def say(self, method: str, path: str, **body: Any) -> tuple[int, Json]:
        """Status and body of an answer."""
        return self.master.ask(method, path, {**self.who, **body})

    def ok(self, method: str, path: str, **body: Any) -> Json:
        """The answer to a call that must work."""
        status, answer = self.say(method, path, **body)
        assert status == 200, answer
        return answer

    def order(self, want: int = 0, **fields: Any) -> Json:
        """The body of a new call for work."""
        self.calls += 1
        report: Json = {"done": [], "failed": [], "back": []}
        scope = {"kinds": ["training"], "datasets": ["train"], "call": self.calls}
        return {**report, "want": want, "wait_s": 0, **scope, **fields}

    def work(self, want: int = 0, **fields: Any) -> Json:
        """A call for work."""
        return self.ok("POST", "/v1/work", **self.order(want, **fields))


def done(lease: Json, **fields: Any) -> Json:
    """An entry of `done`."""
    size = lease["end"] - lease["start"]
    return {**ref(lease), "records": size, "steps": 1, **fields}


def ref(lease: Json) -> Json:
    """The reference to a lease."""
    return {"task": lease["task"], "attempt": lease["attempt"]}


class MasterContract:
    """The facts. Subclasses give the fixtures `master`, `keep` and `take_over`."""

    @pytest.fixture
    def master(self) -> Master:
        """A master of a job that nobody has joined yet."""
        raise NotImplementedError

    @pytest.fixture
    def keep(self) -> Callable[[], None]:
        """Stores a snapshot: everything answered until now is safe, later answers are not."""
        raise NotImplementedError

    @pytest.fixture
    def take_over(self) -> Callable[[], None]:
        """Another master serves from the last snapshot, at the same port."""
        raise NotImplementedError

    def test_a_join_returns_what_a_trainer_needs(self, master: Master) -> None:
        """Job, heartbeat and generation."""
        response = master.join("trainer-0").join_response

        assert {"job", "heartbeat_s", "state", "generation"} <= set(response)

    def test_tasks_cover_a_data_set_once(self, master: Master) -> None:
        """They are ranges with an id, an attempt and a time."""
        master.describe()
        leases = master.join("trainer-0").work(10)["tasks"]

        assert sorted((lease["start"], lease["end"]) for lease in leases) == [
            (0, 10),
            (10, 20),
            (20, 30),
            (30, 40),
        ]
        assert {1} == {lease["attempt"] for lease in leases}
        assert all(lease["lease_s"] > 0 for lease in leases)

    def test_work_is_done_when_all_is_acknowledged(self, master: Master) -> None:
        """Not while another holds a task."""
        master.describe()
        trainer, peer = master.join("trainer-0"), master.join("trainer-1")
        leases, peer_leases = trainer.work(3)["tasks"], peer.work(3)["tasks"]
        first = trainer.work(1, done=[done(lease) for lease in leases])
        last = peer.work(1, done=[done(lease) for lease in peer_leases])

        assert first["results"] == ["accepted"] * 3
        assert first["state"] == "wait"
        assert last["state"] == "done"
        assert trainer.work(1)["state"] == "done"

    def test_a_done_that_comes_again_is_accepted_and_counts_once(self, master: Master) -> None:
        """Its answer may have been lost."""
        master.describe()
        trainer = master.join("trainer-0")
        lease = trainer.work(1)["tasks"][0]

        assert [trainer.work(done=[done(lease)])["results"] for _ in range(2)] == [["accepted"]] * 2

    def test_the_same_call_gets_the_same_answer(self, master: Master) -> None:
        """Leases included."""
        master.describe()
        trainer = master.join("trainer-0")
        request = trainer.order(2)
        first, second = (trainer.ok("POST", "/v1/work", **request)["tasks"] for _ in range(2))

        assert first == second
        assert len(first) == 2

    def test_a_call_that_arrives_after_a_later_one_is_refused(self, master: Master) -> None:
        """Its client has given it up, so it must lease nothing."""
        master.describe()
        trainer = master.join("trainer-0")
        late = trainer.order(2)
        leases = trainer.work(1)["tasks"]
        status, answer = trainer.say("POST", "/v1/work", **late)

        assert (status, answer["error"]["field"]) == (409, "call")
        assert len(master.join("trainer-1").work(10)["tasks"]) == 4 - len(leases)

    def test_a_call_that_waits_leases_nothing_after_a_later_one(self, master: Master) -> None:
        """Whichever of them the master receives first."""
        master.describe(task_records=40)
        trainer, peer = master.join("trainer-0"), master.join("trainer-1")
        lease = peer.work(1)["tasks"][0]
        waiting = trainer.order(1, wait_s=20)
        with ThreadPoolExecutor() as pool:
            call = pool.submit(trainer.say, "POST", "/v1/work", **waiting)
            trainer.work()
            peer.work(back=[ref(lease)])
            _, answer = call.result()

        assert answer.get("tasks", []) == []
        assert [lease["attempt"] for lease in peer.work(1)["tasks"]] == [2]

    def test_an_attempt_of_the_past_changes_nothing(self, master: Master) -> None:
        """A task that was handed back and leased again has a greater attempt."""
        master.describe(task_records=40)
        trainer, peer = master.join("trainer-0"), master.join("trainer-1")
        old = trainer.work(1)["tasks"][0]
        trainer.work(back=[ref(old)])
        new = peer.work(1)["tasks"][0]
        late = trainer.work(done=[done(old)])

        assert new["attempt"] > old["attempt"]
        assert late["results"] == ["stale"]
        assert peer.work(done=[done(new)])["results"] == ["accepted"]

    def test_a_failed_task_is_leased_again_within_its_budget(self, master: Master) -> None:
        """The third failure drops it, and the rest of the data set can be done."""
        master.describe(task_records=20)
        trainer = master.join("trainer-0")
        trainer.work(done=[done(trainer.work(1)["tasks"][0])])
        for attempt in range(1, 4):
            lease = trainer.work(1, wait_s=20)["tasks"][0]
            trainer.work(failed=[{**ref(lease), "record": 7, "error": "ValueError: broken"}])
            assert attempt == lease["attempt"]

        assert trainer.work(1)["state"] == "done"

    def test_only_tasks_that_were_asked_for_are_leased(self, master: Master) -> None:
        """The state `done` is about these alone."""
        master.describe()
        master.describe("other")
        trainer = master.join("trainer-0")
        leases = trainer.work(10)["tasks"]

        assert {"train"} == {lease["dataset"] for lease in leases}
        assert trainer.work(1, done=[done(lease) for lease in leases])["state"] == "done"

    def test_a_new_incarnation_hands_back_what_the_old_one_held(self, master: Master) -> None:
        """Calls of the old one are refused, because it was replaced."""
        master.describe(task_records=40)
        old = master.join("trainer-0")
        old.work(1)
        new = Trainer(master, {"trainer": "trainer-0", "incarnation": "trainer-0-2"})
        new.ok("POST", "/v1/join")
        status, answer = old.say("POST", "/v1/work", **old.order(1))

        assert [lease["attempt"] for lease in new.work(1)["tasks"]] == [2]
        assert (status, answer["error"]["field"]) == (409, "incarnation")

    def test_calls_before_a_join_are_refused(self, master: Master) -> None:
        """Work and heartbeats are refused."""
        master.describe()
        trainer = Trainer(master, {"trainer": "trainer-9", "incarnation": "x"})
        for path, body in (("/v1/work", trainer.order(1)), ("/v1/heartbeat", {"held": []})):
            status, answer = trainer.say("POST", path, **body)
            assert (status, answer["error"]["field"]) == (404, "trainer")

    def test_the_first_description_wins(self, master: Master) -> None:
        """The same again is fine, another is refused by the field that differs."""
        assert [master.describe()[0] for _ in range(2)] == [200, 200]
        status, answer = master.describe(epochs=2)

        assert (status, answer["error"]["field"]) == (409, "epochs")

    def test_leaving_hands_everything_back(self, master: Master) -> None:
        """Another gets it at once."""
        master.describe(task_records=40)
        trainer, peer = master.join("trainer-0"), master.join("trainer-1")
        lease = trainer.work(1)["tasks"][0]
        trainer.ok("POST", "/v1/leave", back=[ref(lease)])

        assert [lease["attempt"] for lease in peer.work(1)["tasks"]] == [2]

    def test_a_heartbeat_returns_leases_that_are_over(self, master: Master) -> None:
        """Those held are not among them."""
        master.describe()
        trainer = master.join("trainer-0")
        active, released = trainer.work(2)["tasks"]
        trainer.work(back=[ref(released)])
        entries = [{**ref(lease), "trained": 3} for lease in (active, released)]

        assert [released["task"]] == trainer.ok("POST", "/v1/heartbeat", held=entries)["lost"]

    def test_one_saves_at_a_time(self, master: Master) -> None:
        """The newest whole checkpoint is in the status."""
        trainer, peer = master.join("trainer-0"), master.join("trainer-1")
        ticket = trainer.ok("POST", "/v1/checkpoints")

        assert ticket["granted"] is True
        assert peer.ok("POST", "/v1/checkpoints")["granted"] is False
        outcome = {"path": "/models/v1", "step": 12, "ok": True}
        status, _ = master.ask("PUT", f"/v1/checkpoints/{ticket['ticket']}", outcome)
        assert status == 200
        assert master.ask("GET", "/v1/status")[1]["checkpoint"]["path"] == "/models/v1"

    def test_a_wrong_token_is_refused(self, master: Master) -> None:
        """401, before anything else."""
        assert Master(master.port, "wrong").ask("GET", "/v1/status")[0] == 401

    def test_another_master_receives_what_its_snapshot_lacks(
        self, master: Master, keep: Callable[[], None], take_over: Callable[[], None]
    ) -> None:
        """What was acknowledged since counts once; what is held stays held, same attempt."""
        master.describe()
        trainer = master.join("trainer-0")
        first, second, third = trainer.work(3)["tasks"]
        trainer.work(done=[done(first)])
        keep()
        late = trainer.work(done=[done(second)])
        take_over()
        status, _ = trainer.say("POST", "/v1/work", **trainer.order(1))
        again = master.join("trainer-0", done=[done(second)], held=[ref(third)])
        again.calls = trainer.calls
        response = again.work(4, done=[done(third)])

        assert late["safe"] < trainer.calls
        assert status == 404
        assert again.join_response["generation"] > trainer.join_response["generation"]
        assert response["results"] == ["accepted"]
        assert len(response["tasks"]) == 1
        assert again.work(1, done=[done(response["tasks"][0])])["state"] == "done"
