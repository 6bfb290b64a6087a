"""A parameter server over HTTP: what it refuses, what it shows, and what it waits for."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from pserver import frames, intake
from pserver.errors import BusyError
from pserver.intake import Intake
from pserver.protocol import Enter
from tests.pserver.serving import Served
from tests.pserver.test_server import order
from tests.pserver.worlds import Json, model
from tests.sdk.servers import TOKEN

WHO: Json = {"trainer": "t", "incarnation": "i", "generation": 1}


class Address(Protocol):
    """A server in a thread, or a process."""

    port: int


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """The only server of a job."""
    found = Served(tmp_path)
    yield found
    found.stop()


def ask(
    served: Address, method: str, path: str, body: bytes | Json = b"", token: str = TOKEN
) -> tuple[int, Any]:
    """Status and body of an answer; the body as JSON or as a frame."""
    link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    raw = json.dumps(body).encode() if isinstance(body, dict) else body
    try:
        link.request(method, path, raw, {"Authorization": f"Bearer {token}"})
        answer = link.getresponse()
        data = answer.read()
    finally:
        link.close()
    if data.startswith(frames.MAGIC):
        return answer.status, frames.decode(data)
    return answer.status, json.loads(data) if data.startswith(b"{") else data.decode()


def framed(meta: Json, **arrays: Any) -> bytes:
    """A body."""
    return b"".join(frames.encode(meta, {k.replace("_", "."): v for k, v in arrays.items()}))


def begin(served: Address, **rules: Any) -> None:
    """Generation 1, from zeros."""
    meta = order(model=model(rules=rules).model_dump()).model_dump()
    status, answer = ask(served, "POST", "/v1/settle", framed(meta, dense=np.zeros(8, np.float32)))
    assert status == 200, answer


def pushed(served: Address, number: int = 1, value: float = 1.0, **more: Any) -> tuple[int, Any]:
    """What a push is answered."""
    meta = {**WHO, "number": number, "version": 0, "records": 10, **more}
    return ask(served, "POST", "/v1/push", framed(meta, dense=np.full(8, value, np.float32)))


def test_parameters_go_in_and_out(served: Served) -> None:
    """A push with rows, a pull, a lookup, and the rows of the whole table."""
    begin(served)
    meta = {**WHO, "number": 1, "version": 0, "records": 10, "tables": ["words"], "want": True}
    ids, rows = np.array([4, 9]), np.ones((2, 2), np.float32)
    body = framed(meta, dense=np.ones(8, np.float32), ids_0=ids, rows_0=rows)
    status, answer = ask(served, "POST", "/v1/push", body)
    pull = {**WHO, "version": -1}
    looked = ask(served, "POST", "/v1/lookup", framed({**WHO, "table": "words"}, ids=ids))[1]
    paged = ask(served, "POST", "/v1/rows", {**WHO, "table": "words"})[1]

    assert (status, answer.meta["outcome"], answer.meta["version"]) == (200, "applied", 1)
    assert answer.arrays["dense"].tolist() == [-1.0] * 8
    assert ask(served, "POST", "/v1/pull", pull)[1].arrays["dense"].tolist() == [-1.0] * 8
    assert ask(served, "POST", "/v1/pull", {**pull, "version": 1})[1].arrays == {}
    assert paged.arrays["ids"].tolist() == [4, 9]
    assert np.array_equal(paged.arrays["rows"], looked.arrays["rows"])


@pytest.mark.parametrize(
    ("call", "body", "status", "said"),
    [
        ("POST /v1/pull", b"{", 400, "the body is no JSON"),
        ("POST /v1/pull", {**WHO}, 422, "version: Field required"),
        ("POST /v1/pull", {**WHO, "version": 0, "x": 1}, 422, "x: no such field"),
        ("POST /v1/pull", {**WHO, "version": "0"}, 422, "version: "),
        ("POST /v1/pull", {**WHO, "version": 0, "generation": 7}, 409, "generation 7 is over"),
        ("POST /v1/push", b"hello, this is no frame", 400, "the body is no frame"),
        ("POST /v1/push", framed({}), 422, "trainer: Field required"),
        ("POST /v1/settle", framed({}, dense=np.zeros(1, np.int64)), 422, "Field required"),
        ("POST /v1/enter", {"generation": 0}, 422, "trainer: Field required"),
        ("POST /v1/tickets", {**WHO, "kind": "x"}, 422, "kind: "),
        ("POST /v1/rows", {**WHO, "table": "x"}, 422, "no table 'x'; tables are: words"),
        ("POST /v1/commit", {**WHO, "version": 3}, 507, "cannot commit"),
        ("PUT /v1/pins/one", {**WHO}, 422, "whole number"),
        ("PUT /v1/pins/1", {}, 422, "trainer"),
        ("GET /v1/nothing", b"", 404, "Not Found"),
        ("PUT /v1/pull", b"", 405, "Not Allowed"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    served: Served, call: str, body: bytes | Json, status: int, said: str
) -> None:
    """As JSON, with the field where there is one."""
    begin(served)
    method, _, path = call.partition(" ")
    found, answer = ask(served, method, path, body)

    assert found == status
    assert said in answer["error"]["message"]
    assert "\n" not in answer["error"]["message"]


def test_first_parameters_of_another_kind_are_refused(served: Served) -> None:
    """Whole numbers are no parameters."""
    body = framed(order().model_dump(), dense=np.zeros(8, np.int64))

    status, answer = ask(served, "POST", "/v1/settle", body)
    assert (status, answer["error"]["field"]) == (422, "dense")


def test_one_trainer_at_a_time_may_settle_for_all(served: Served) -> None:
    """Server 0 gives the ticket to the first who asks, and to the next once it is back."""
    other = {**WHO, "trainer": "u", "incarnation": "j"}

    def granted(who: Json, **more: Any) -> bool:
        status, answer = ask(served, "POST", "/v1/tickets", {**who, "kind": "settle", **more})
        assert status == 200, answer
        return bool(answer["granted"])

    assert [granted(WHO), granted(other)] == [True, False]
    granted(WHO, back=True)
    assert granted(other)


def test_nothing_is_told_without_the_token(served: Served) -> None:
    """But that it lives, and numbers."""
    for path in ("/v1/status", "/v1/model"):
        assert ask(served, "GET", path, token="wrong")[0] == 401  # noqa: S106 - a wrong one
    for path in ("/healthz", "/metrics"):
        assert ask(served, "GET", path, token="")[0] == 200


def test_a_body_must_say_how_long_it_is(served: Served) -> None:
    """And must not be longer than the longest."""
    for header, status in (
        ("Transfer-Encoding: chunked", 411),
        (f"Content-Length: {1 << 40}", 413),
    ):
        link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        link.putrequest("POST", "/v1/pull")
        link.putheader("Authorization", f"Bearer {TOKEN}")
        link.putheader(*header.split(": "))
        link.endheaders()
        assert link.getresponse().status == status
        link.close()


def test_a_gradient_that_is_no_number_is_refused_and_shown(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """With trainer, step and parameter: in the answer, the status and the log."""
    begin(served)
    status, answer = pushed(served, 4, np.nan)
    told = ask(served, "POST", "/v1/refusals", {**WHO, "number": 5, "parameter": "the loss"})

    assert (status, answer["error"]["field"]) == (422, "gradients.w")
    assert told[0] == 200
    found = ask(served, "GET", "/v1/status")[1]["non_finite"]
    assert [(one["step"], one["parameter"]) for one in found["newest"]] == [
        (4, "w"),
        (5, "the loss"),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "gradient with NaN or infinity"
    ] * 2


def test_status_and_metrics_show_what_there_is(served: Served) -> None:
    """Version, rows, bytes, what became of pushes; before and after the first generation."""
    empty = ask(served, "GET", "/metrics")[1]
    assert "edl_pserver_version_count 0.0" in empty
    begin(served, max_staleness=0)
    for number in (1, 1, 2):
        pushed(served, number)
    status = ask(served, "GET", "/v1/status")[1]
    text = ask(served, "GET", "/metrics")[1]

    assert status["pushes"] == {"applied": 1, "repeated": 1, "stale": 1}
    assert status["serving"]["memory"]["used_bytes"] > 0
    assert (status["job"], status["index"], status["of"]) == ("digits", 0, 1)
    for line in (
        'edl_pserver_pushes_count{outcome="stale"} 1.0',
        "edl_pserver_version_count 1.0",
        "edl_pserver_records_count 10.0",
        'edl_pserver_calls_total{path="/v1/push",status="200"} 3.0',
    ):
        assert line in text


def test_who_waits_for_a_generation_hears_of_it_when_it_begins(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when its time is over; who does not want to wait does not."""
    body = {"trainer": "t", "incarnation": "i", "generation": 0}
    assert ask(served, "POST", "/v1/enter", body)[1]["ready"] is False
    assert ask(served, "POST", "/v1/enter", {**body, "wait_s": 0.05})[1]["ready"] is False
    waits, enter = threading.Event(), served.server.enter

    def heard(found: Enter) -> Json:
        answer = enter(found)
        waits.set()
        return answer

    monkeypatch.setattr(served.server, "enter", heard)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, served, "POST", "/v1/enter", {**body, "wait_s": 24})
        assert waits.wait(60)
        begin(served)
        assert waiting.result(20)[1]["ready"] is True


def test_a_model_can_be_read_by_who_only_looks(served: Served) -> None:
    """Once there is one."""
    assert ask(served, "GET", "/v1/model")[0] == 409
    begin(served)
    found = ask(served, "GET", "/v1/model")[1]

    assert found["model"]["parameters"] == {"w": [2, 3], "b": [2]}
    assert [piece["name"] for piece in found["pieces"]] == ["w", "b"]


def test_a_checkpoint_in_two_phases(served: Served) -> None:
    """It is shown once it is committed, and is there for the next process."""
    begin(served)
    pushed(served)
    for path in ("/v1/prepare", "/v1/prepare", "/v1/commit", "/v1/commit"):
        assert ask(served, "POST", path, {**WHO, "version": 1})[0] == 200, path
    assert ask(served, "GET", "/v1/status")[1]["checkpoint"]["version"] == 1
    pushed(served, 2)
    served.kill()
    served.start()

    state = ask(served, "POST", "/v1/enter", {**WHO, "generation": 0})[1]
    assert state["have"] == [{"generation": 1, "version": 1, "of": 1}]
    assert (state["ready"], state["generation"]) == (False, 1)


@pytest.mark.parametrize("disk", ["works", "gone"])
def test_a_checkpoint_holds_memory_only_while_it_is_written(
    served: Served, tmp_path: Path, disk: str
) -> None:
    """Written or failed: pushes after it need no copies, however many checkpoints there were."""
    begin(served)
    if disk == "gone":
        (tmp_path / "digits").rename(tmp_path / "elsewhere")
    used = set()
    for number in range(1, 5):
        pushed(served, number)
        who = {**WHO, "version": number}
        assert ask(served, "POST", "/v1/prepare", who)[0] == (200 if disk == "works" else 507)
        pushed(served, number + 10)
        memory = ask(served, "GET", "/v1/status")[1]["serving"]["memory"]
        used.add((memory["used_bytes"], memory["held_bytes"]))

    assert len(used) == 1
    assert used.pop()[1] == 0
    if disk == "gone":
        (tmp_path / "elsewhere").rename(tmp_path / "digits")


def test_told_to_end_it_goes_on_where_it_was(served: Served) -> None:
    """Once: killed after that, it begins anew."""
    begin(served)
    pushed(served)
    served.stop()
    served.start()
    assert pushed(served)[1].meta["outcome"] == "repeated"
    assert pushed(served, 2)[1].meta["version"] == 2
    served.kill()
    served.start()

    assert pushed(served, 3)[0] == 409


def test_pins_come_and_go(served: Served) -> None:
    """By number."""
    begin(served)
    pushed(served)
    assert ask(served, "PUT", "/v1/pins/7", WHO) == (200, {"version": 1})
    assert ask(served, "DELETE", "/v1/pins/7", WHO)[0] == 200
    status, answer = ask(served, "POST", "/v1/pull", {**WHO, "version": -1, "pin": 7})

    assert (status, answer["error"]["field"]) == (404, "pin")


def test_a_full_server_says_what_to_do(tmp_path: Path) -> None:
    """And goes on with what it has."""
    found = Served(tmp_path, most_bytes=40_000)
    try:
        begin(found)
        meta = {**WHO, "number": 1, "version": 0, "records": 1, "tables": ["words"]}
        rows = np.ones((2, 2), np.float32)
        status, answer = ask(
            found, "POST", "/v1/push", framed(meta, ids_0=np.arange(2), rows_0=rows)
        )
        assert status == 507
        assert "--max-bytes" in answer["error"]["message"]
        assert pushed(found)[0] == 200
    finally:
        found.stop()


async def stuck() -> None:
    """All tasks of this loop have run as far as they can; none of them waits for a thread."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_bodies_wait_for_room_in_order() -> None:
    """One that is larger than all of it comes in alone."""

    async def run() -> list[str]:
        found, said = Intake(10), []

        async def body(name: str, size: int, ends: asyncio.Event) -> None:
            async with found.room(size):
                said.append(name)
                await ends.wait()

        first, rest = asyncio.Event(), asyncio.Event()
        rest.set()
        tasks = [
            asyncio.create_task(body(*one))
            for one in (("a", 6, first), ("b", 5, rest), ("c", 4, rest), ("d", 50, rest))
        ]
        await stuck()
        assert said == ["a"]
        tasks[1].cancel()
        await stuck()
        assert said == ["a", "c"]
        first.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert found.used == 0
        return said

    assert asyncio.run(run()) == ["a", "c", "d"]


def test_a_body_that_finds_no_room_for_long_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """503: it comes again."""
    monkeypatch.setattr(intake, "WAIT_S", 0.01)

    async def run() -> None:
        found = Intake(10)
        async with found.room(10):
            with pytest.raises(BusyError, match="too much is on its way"):
                async with found.room(1):
                    raise AssertionError("there is no room")
        assert found.used == 0

    asyncio.run(run())
