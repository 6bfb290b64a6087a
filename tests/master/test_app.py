"""Wrong calls over HTTP: each gets a clear error, nothing is lost, and the master continues."""

import http.client
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from edl_protocol import master as protocol

from master.service import AGAIN_S
from runtime import clock
from tests.master.serving import TOKEN, Served
from tests.master.test_journal import full_disk
from tests.reconciler.waiting import LIMIT_S, until
from tests.sdk.support.contract import NUMBERS, Json, Master, done, ref
from tests.sdk.support.contract_rendezvous import together

_HEARTBEAT_S = 5.0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A master with a data set of four tasks."""
    running_master = Served(tmp_path / "journal", heartbeat_s=_HEARTBEAT_S)
    yield running_master
    running_master.stop()


@pytest.fixture
def master(served: Served) -> Master:
    """A client of it."""
    client = Master(served.port, TOKEN)
    assert client.describe()[0] == 200
    return client


def _raw(
    served: Served, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    try:
        link.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", **headers})
        answer = link.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        link.close()


def _wait_there(served: Served, calls: int) -> None:
    """Returns when this many calls for work wait at the master."""
    waiting_calls = served.service._waiting_calls  # noqa: SLF001 - nothing else has it
    until(lambda: len(waiting_calls) == calls)


def _who(**fields: Any) -> Json:
    return {"trainer": "a", "incarnation": "a-1", **fields}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/join", b"{", (400, None)),
        ("/v1/join", b"\xff\xfe", (400, None)),
        ("/v1/join", b"[]", (422, None)),
        ("/v1/join", b"{}", (422, "trainer")),
        ("/v1/join", json.dumps(_who(extra=1)).encode(), (422, "extra")),
        ("/v1/join", json.dumps(_who(trainer="a b")).encode(), (422, "trainer")),
        ("/v1/join", json.dumps(_who(trainer="x" * 300)).encode(), (422, "trainer")),
        ("/v1/work", json.dumps(_who(want=-1)).encode(), (422, "want")),
        ("/v1/work", json.dumps(_who(want=10**9)).encode(), (422, "want")),
        ("/v1/work", json.dumps(_who(wait_s=1e9)).encode(), (422, "wait_s")),
        ("/v1/work", b'{"trainer":"a","incarnation":"b","wait_s":NaN}', (422, "wait_s")),
        ("/v1/work", json.dumps(_who(kinds=["cooking"])).encode(), (422, "kinds.0")),
        ("/v1/work", json.dumps(_who(done=[{"task": "t"}])).encode(), (422, "done.0.attempt")),
        ("/v1/work", json.dumps(_who(want=1)).encode(), (404, "trainer")),
        ("/v1/heartbeat", json.dumps(_who()).encode(), (404, "trainer")),
        ("/v1/leave", json.dumps(_who()).encode(), (404, "trainer")),
        ("/v1/checkpoints", json.dumps(_who()).encode(), (404, "trainer")),
        ("/v1/evaluations", b'{"model_version":1,"dataset":"train"}', (404, "dataset")),
        ("/v1/nothing", b"{}", (404, None)),
    ],
)
def test_a_mistake_is_named(
    served: Served, master: Master, path: str, body: bytes, expected: tuple[int, str | None]
) -> None:
    """The error is one line with the field; the next call works."""
    status, raw, headers = _raw(served, "POST", path, body)
    error = json.loads(raw)["error"]

    assert (status, error.get("field")) == expected
    assert headers["Content-Type"].startswith("application/json")
    assert "\n" not in error["message"]
    assert "Traceback" not in raw.decode()
    assert master.join("trainer-0").work(1)["state"] == "work"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"records": 0}, "records"),
        ({"records": None}, "records"),
        ({"records": None, "files": []}, "files"),
        ({"records": None, "files": [{"name": "a", "records": 0}]}, "files"),
        ({"files": [{"name": "a", "records": 3}]}, "records"),
        ({"task_records": 0}, "task_records"),
        ({"epochs": 0}, "epochs"),
        ({"records": None, "stream": True, "epochs": 2}, "epochs"),
        ({"kind": "cooking"}, "kind"),
        ({"shuffle_seed": "x"}, "shuffle_seed"),
    ],
)
def test_a_data_set_that_cannot_be_is_refused(master: Master, changes: Json, named: str) -> None:
    """So is an empty one: there is nothing to train on."""
    status, answer = master.ask("PUT", "/v1/datasets/other", {**NUMBERS, **changes})

    assert (status, answer["error"]["field"]) == (422, named)
    assert list(master.ask("GET", "/v1/status")[1]["datasets"]) == ["train"]


@pytest.mark.parametrize("name", ["a%2Fb", "%20", "x" * 300, "-a"])
def test_a_name_that_no_data_set_may_have(served: Served, name: str) -> None:
    """Task ids contain it."""
    status, raw, _ = _raw(served, "PUT", f"/v1/datasets/{name}", json.dumps(NUMBERS).encode())

    assert status in (404, 422), raw


def test_a_body_that_is_too_long_is_refused(served: Served) -> None:
    """It is refused before it is read completely."""
    status, raw, _ = _raw(served, "POST", "/v1/join", b" " * (protocol.MAX_BYTES + 1))

    assert status == 413
    assert json.loads(raw)["error"]["message"].startswith("the body is longer")


def test_a_wrong_method_is_refused(served: Served) -> None:
    """The error is JSON too."""
    status, raw, _ = _raw(served, "DELETE", "/v1/status")

    assert status == 405
    assert json.loads(raw)["error"]["status"] == 405


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", f"Token {TOKEN}", "Basic !!!", "Basic bWU6eA=="]
)
def test_without_the_token_nothing_is_revealed(served: Served, authorization: str) -> None:
    """All calls are refused; another job's token is a wrong one."""
    for path in ("/v1/status", "/v1/evaluations/1"):
        status, raw, _ = _raw(served, "GET", path, Authorization=authorization)
        assert status == 401
        assert TOKEN not in raw.decode()
    assert _raw(served, "POST", "/v1/join", b"{}", Authorization=authorization)[0] == 401


def test_probes_and_scrapes_need_no_token(served: Served, master: Master) -> None:
    """They reveal numbers only."""
    trainer = master.join("trainer-0")
    trainer.work(done=[done(lease) for lease in trainer.work(2)["tasks"]])
    texts = [
        _raw(served, "GET", path, Authorization="")[1].decode()
        for path in ("/healthz", "/metrics", "/openapi.json")
    ]

    assert json.loads(texts[0]) == {"ok": True}
    assert 'edl_master_tasks{outcome="done"} 2.0' in texts[1]
    assert 'path="/v1/work",status="200"' in texts[1]
    assert json.loads(texts[2])["openapi"].startswith("3.")


def test_an_unknown_evaluation_is_named(master: Master) -> None:
    """So is a version that is not a number."""
    for text, status in (("7", 404), ("x", 422), ("9" * 40, 422)):
        answer_status, answer = master.ask("GET", f"/v1/evaluations/{text}")
        assert (answer_status, answer["error"]["field"]) == (status, "model_version")


def test_evaluations_are_requested_and_reported(master: Master) -> None:
    """Over HTTP, from the request to the means."""
    master.describe("test", kind="evaluation", epochs=0, records=10)
    assert master.ask("POST", "/v1/evaluations", {"model_version": 3, "dataset": "test"})[0] == 200
    trainer = master.join("trainer-0")
    scope: Json = {"kinds": ["evaluation"], "datasets": ["test"]}
    leases = trainer.work(1, **scope)["tasks"]
    trainer.work(done=[done(leases[0], metrics={"accuracy": 0.9})])
    evaluation = master.ask("GET", "/v1/evaluations/3")[1]["rounds"][0]

    assert evaluation == {
        "dataset": "test",
        "model_version": 3,
        "records": 10,
        "metrics": {"accuracy": 0.9},
        "complete": True,
    }


def test_a_full_disk_refuses_and_loses_nothing(
    served: Served, master: Master, tmp_path: Path
) -> None:
    """The caller may try again; once there is space, the same call works."""
    trainer = master.join("trainer-0")
    order = trainer.order(2)
    with full_disk(5, tmp_path / "journal" / "journal-1.log"):
        status, answer = trainer.say("POST", "/v1/work", **order)
        healthy = _raw(served, "GET", "/healthz")[0]
        full = served.service.status()
    tasks = trainer.ok("POST", "/v1/work", **order)["tasks"]
    report = trainer.order(0, done=[{**ref(tasks[0]), "steps": 1}])
    with full_disk(5, tmp_path / "journal" / "journal-1.log"):
        refused, _ = trainer.say("POST", "/v1/work", **report)
        unacknowledged = served.service.status()["datasets"]["train"]["done_records"]
    results = trainer.ok("POST", "/v1/work", **report)["results"]
    after = served.service.status()

    assert (status, healthy, refused) == (507, 200, 507)
    assert "cannot write the journal" in answer["error"]["message"]
    assert [lease["attempt"] for lease in tasks] == [1, 1]
    (error,) = full["storage_errors"]
    assert error.startswith("calls are refused, trainers try again: cannot write the journal")
    assert (unacknowledged, results) == (0, ["accepted"])
    assert after["datasets"]["train"]["done_records"] == 10
    assert after["storage_errors"] == []
    assert (full["counts"]["failed_writes"], after["counts"]["failed_writes"]) == (1, 2)
    scraped = _raw(served, "GET", "/metrics")[1].decode()
    assert "edl_master_journal_failures_total 2.0" in scraped


def test_a_call_waits_until_something_is_free(served: Served, master: Master) -> None:
    """It is answered when another trainer returns a task, or when its own time is over."""
    master.describe("one", records=10)
    scope: Json = {"datasets": ["one"]}
    trainer, other = master.join("trainer-0"), master.join("trainer-1")
    lease = trainer.work(1, **scope)["tasks"][0]
    begun_s = clock.monotonic_s()
    waited = other.work(1, wait_s=0.3, **scope)
    took_s = clock.monotonic_s() - begun_s
    answers: list[Json] = []
    waiting = threading.Thread(target=lambda: answers.append(other.work(1, wait_s=30.0, **scope)))
    waiting.start()
    _wait_there(served, 1)
    trainer.work(back=[ref(lease)])
    waiting.join(LIMIT_S)

    assert (waited["tasks"], waited["state"], waited["again_s"]) == ([], "wait", AGAIN_S)
    assert took_s >= 0.3
    assert [task["task"] for answer in answers for task in answer["tasks"]] == ["one/0/0"]


def test_a_call_that_waits_for_some_tasks_is_not_answered_by_others(
    served: Served, master: Master
) -> None:
    """It ignores tasks of other kinds and other data sets."""
    for name in ("test", "later"):
        master.describe(name, kind="evaluation", epochs=0, records=10)
    master.ask("POST", "/v1/evaluations", {"model_version": 3, "dataset": "test"})
    trainer, other = master.join("trainer-0"), master.join("trainer-1")
    both: Json = {"datasets": ["train", "test"]}
    leases = {lease["kind"]: lease for lease in trainer.work(5, kinds=None, **both)["tasks"]}
    answers: list[Json] = []
    call = partial(other.work, 1, wait_s=30.0, kinds=["evaluation"], **both)
    waiting = threading.Thread(target=lambda: answers.append(call()))
    waiting.start()
    _wait_there(served, 1)
    trainer.work(back=[ref(leases["training"])])
    master.ask("POST", "/v1/evaluations", {"model_version": 4, "dataset": "later"})
    trainer.work(back=[ref(leases["evaluation"])])
    waiting.join(LIMIT_S)

    assert [task["task"] for answer in answers for task in answer["tasks"]] == ["test/0/0"]
    assert ["again_s" in answer for answer in answers] == [False]


def test_a_task_that_fails_is_in_the_masters_log(
    master: Master, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the trainer's error, whether or not the task is tried again."""
    trainer = master.join("trainer-0")
    lease = trainer.work(1)["tasks"][0]
    trainer.work(failed=[{**ref(lease), "error": "ValueError: no such image"}])
    failure = next(record for record in caplog.records if record.message == "task failed")

    assert vars(failure)["edl_keys"] == {
        "task": lease["task"],
        "trainer": "trainer-0",
        "error": "ValueError: no such image",
    }


def test_trainers_that_fall_silent_are_dead(served: Served, master: Master) -> None:
    """Their tasks are leased to others, and what they had trained of them is counted."""
    served.clock.hold()
    master.describe("one", records=10)
    trainer = master.join("trainer-0")
    lease = trainer.work(1, datasets=["one"])["tasks"][0]
    trainer.ok("POST", "/v1/heartbeat", held=[{**ref(lease), "trained": 4}])
    other = master.join("trainer-1")
    answers: list[Json] = []
    call = partial(other.work, 1, wait_s=30.0, datasets=["one"])
    waiting = threading.Thread(target=lambda: answers.append(call()))
    waiting.start()
    _wait_there(served, 1)
    served.pass_s(3 * _HEARTBEAT_S + 0.1)
    waiting.join(LIMIT_S)
    status = master.ask("GET", "/v1/status")[1]

    assert [task["attempt"] for answer in answers for task in answer["tasks"]] == [2]
    assert status["lost_records"] == 4
    assert list(status["trainers"]) == ["trainer-1"]


def test_tasks_that_heartbeats_do_not_report_are_returned(served: Served, master: Master) -> None:
    """The answer that leased them was lost; after three heartbeats others get them."""
    served.clock.hold()
    master.describe("one", records=10)
    trainer = master.join("trainer-0")
    trainer.work(1, datasets=["one"])
    other = master.join("trainer-1")
    answers: list[list[Json]] = []
    for _ in range(3):
        trainer.ok("POST", "/v1/heartbeat", held=[])
        answers.append(other.work(1, datasets=["one"])["tasks"])
        served.pass_s(1.5 * _HEARTBEAT_S)

    assert [[task["attempt"] for task in tasks] for tasks in answers] == [[], [], [2]]
    assert served.service.ledger.lost_records == 0


def test_the_status_has_the_members_of_the_round(served: Served, master: Master) -> None:
    """With ranks; losing the leader costs the others more."""
    for name in ("a", "b"):
        master.join(name)
    master.join("c")
    together(master, "b", "a")
    status = master.ask("GET", "/v1/status")[1]
    trainers = status["trainers"]

    assert status["rendezvous"]["formed"] is True
    assert [member["trainer"] for member in status["rendezvous"]["members"]] == ["b", "a"]
    assert {name: trainer["rank"] for name, trainer in trainers.items()} == {
        "a": 1,
        "b": 0,
        "c": None,
    }
    assert trainers["b"]["uncommitted_s"] >= 10.0
    assert trainers["a"]["uncommitted_s"] == 0.0
    assert served.service.ledger.trainers.find("b") is not None
