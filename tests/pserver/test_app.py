"""A parameter server over HTTP: errors, status, metrics and waiting."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from edl_protocol.frames import MAGIC
from edl_protocol.pserver import Enter

from pserver import frames, inflight_limit
from pserver.errors import BusyError
from pserver.inflight_limit import InflightLimit
from tests.pserver.builders import Json, model
from tests.pserver.calls import settle_request
from tests.pserver.serving import RunningServer
from tests.sdk.support.master_server import TOKEN

WHO: Json = {"trainer": "t", "incarnation": "i", "generation": 1}


class Address(Protocol):
    """A server in a thread, or a process."""

    port: int


@pytest.fixture
def served(tmp_path: Path) -> Iterator[RunningServer]:
    """The only server of a job."""
    server = RunningServer(tmp_path)
    yield server
    server.stop()


def call(
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
    if data.startswith(MAGIC):
        return answer.status, frames.decode(data)
    return answer.status, json.loads(data) if data.startswith(b"{") else data.decode()


def framed(meta: Json, **arrays: Any) -> bytes:
    """A body."""
    return b"".join(frames.encode(meta, {k.replace("_", "."): v for k, v in arrays.items()}))


def begin_generation(served: Address, **rules: Any) -> None:
    """Generation 1, from zeros."""
    meta = asdict(settle_request(model=asdict(model(rules=rules))))
    status, answer = call(served, "POST", "/v1/settle", framed(meta, dense=np.zeros(8, np.float32)))
    assert status == 200, answer


def push_ones(
    served: Address, number: int = 1, value: float = 1.0, **fields: Any
) -> tuple[int, Any]:
    """What a push is answered."""
    meta = {**WHO, "number": number, "version": 0, "records": 10, **fields}
    return call(served, "POST", "/v1/push", framed(meta, dense=np.full(8, value, np.float32)))


def test_parameters_go_in_and_out(served: RunningServer) -> None:
    """A push with rows, a pull, a lookup, and the rows of the whole table."""
    begin_generation(served)
    meta = {**WHO, "number": 1, "version": 0, "records": 10, "tables": ["words"], "want": True}
    ids, rows = np.array([4, 9]), np.ones((2, 2), np.float32)
    body = framed(meta, dense=np.ones(8, np.float32), ids_0=ids, rows_0=rows)
    status, answer = call(served, "POST", "/v1/push", body)
    pull = {**WHO, "version": -1}
    looked = call(served, "POST", "/v1/lookup", framed({**WHO, "table": "words"}, ids=ids))[1]
    paged = call(served, "POST", "/v1/rows", {**WHO, "table": "words"})[1]

    assert (status, answer.meta["outcome"], answer.meta["version"]) == (200, "applied", 1)
    assert answer.arrays["dense"].tolist() == [-1.0] * 8
    assert call(served, "POST", "/v1/pull", pull)[1].arrays["dense"].tolist() == [-1.0] * 8
    assert call(served, "POST", "/v1/pull", {**pull, "version": 1})[1].arrays == {}
    assert paged.arrays["ids"].tolist() == [4, 9]
    assert np.array_equal(paged.arrays["rows"], looked.arrays["rows"])


@pytest.mark.parametrize(
    ("route", "body", "status", "message"),
    [
        ("POST /v1/pull", b"{", 400, "the body is not JSON"),
        ("POST /v1/pull", {**WHO}, 422, "version: Field required"),
        ("POST /v1/pull", {**WHO, "version": 0, "x": 1}, 422, "x: no such field"),
        ("POST /v1/pull", {**WHO, "version": "0"}, 422, "version: "),
        ("POST /v1/pull", {**WHO, "version": 0, "generation": 7}, 409, "generation 7 is over"),
        ("POST /v1/push", b"hello, this is no frame", 400, "the body is not a frame"),
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
    served: RunningServer, route: str, body: bytes | Json, status: int, message: str
) -> None:
    """As JSON, with the field where there is one."""
    begin_generation(served)
    method, _, path = route.partition(" ")
    answer_status, answer = call(served, method, path, body)

    assert answer_status == status
    assert message in answer["error"]["message"]
    assert "\n" not in answer["error"]["message"]


def test_first_parameters_of_another_kind_are_refused(served: RunningServer) -> None:
    """Whole numbers are no parameters."""
    body = framed(asdict(settle_request()), dense=np.zeros(8, np.int64))

    status, answer = call(served, "POST", "/v1/settle", body)
    assert (status, answer["error"]["field"]) == (422, "dense")


def test_one_trainer_at_a_time_may_settle_for_all(served: RunningServer) -> None:
    """Server 0 gives the ticket to the first who asks, and to the next once it is back."""
    other = {**WHO, "trainer": "u", "incarnation": "j"}

    def granted(who: Json, **fields: Any) -> bool:
        status, answer = call(served, "POST", "/v1/tickets", {**who, "kind": "settle", **fields})
        assert status == 200, answer
        return bool(answer["granted"])

    assert [granted(WHO), granted(other)] == [True, False]
    granted(WHO, back=True)
    assert granted(other)


def test_calls_need_the_token(served: RunningServer) -> None:
    """Except health and metrics."""
    for path in ("/v1/status", "/v1/model"):
        assert call(served, "GET", path, token="wrong")[0] == 401  # noqa: S106 - a wrong one
    for path in ("/healthz", "/metrics"):
        assert call(served, "GET", path, token="")[0] == 200


def test_a_body_must_say_how_long_it_is(served: RunningServer) -> None:
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


def test_a_gradient_with_nan_is_refused_and_reported(
    served: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """With trainer, step and parameter: in the answer, the status and the log."""
    begin_generation(served)
    status, answer = push_ones(served, 4, np.nan)
    refusal = call(served, "POST", "/v1/refusals", {**WHO, "number": 5, "parameter": "the loss"})

    assert (status, answer["error"]["field"]) == (422, "gradients.w")
    assert refusal[0] == 200
    non_finite = call(served, "GET", "/v1/status")[1]["non_finite"]
    assert [(entry["step"], entry["parameter"]) for entry in non_finite["newest"]] == [
        (4, "w"),
        (5, "the loss"),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "gradient with NaN or infinity"
    ] * 2


def test_status_and_metrics_show_what_there_is(served: RunningServer) -> None:
    """Version, rows, bytes, what became of pushes; before and after the first generation."""
    empty = call(served, "GET", "/metrics")[1]
    assert "edl_pserver_version 0.0" in empty
    begin_generation(served, max_staleness=0)
    for number in (1, 1, 2):
        push_ones(served, number)
    status = call(served, "GET", "/v1/status")[1]
    text = call(served, "GET", "/metrics")[1]

    assert status["pushes"] == {"applied": 1, "repeated": 1, "stale": 1}
    assert status["serving"]["memory"]["used_bytes"] > 0
    assert (status["job"], status["index"], status["of"]) == ("digits", 0, 1)
    for line in (
        'edl_pserver_pushes_total{outcome="stale"} 1.0',
        "edl_pserver_version 1.0",
        "edl_pserver_records 10.0",
        'edl_pserver_calls_total{path="/v1/push",status="200"} 3.0',
    ):
        assert line in text


def test_a_waiting_caller_is_answered_when_a_generation_starts(
    served: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only at its time limit; a caller may also not wait."""
    body = {"trainer": "t", "incarnation": "i", "generation": 0}
    assert call(served, "POST", "/v1/enter", body)[1]["ready"] is False
    assert call(served, "POST", "/v1/enter", {**body, "wait_s": 0.05})[1]["ready"] is False
    waits, enter = threading.Event(), served.server.enter

    def observed_enter(body: Enter) -> Json:
        answer = enter(body)
        waits.set()
        return answer

    monkeypatch.setattr(served.server, "enter", observed_enter)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call, served, "POST", "/v1/enter", {**body, "wait_s": 24})
        assert waits.wait(60)
        begin_generation(served)
        assert waiting.result(60)[1]["ready"] is True


def test_a_caller_without_a_model_can_read_it(served: RunningServer) -> None:
    """Once there is one."""
    assert call(served, "GET", "/v1/model")[0] == 409
    begin_generation(served)
    model_answer = call(served, "GET", "/v1/model")[1]

    assert model_answer["model"]["parameters"] == {"w": [2, 3], "b": [2]}
    assert [piece["name"] for piece in model_answer["pieces"]] == ["w", "b"]


def test_a_checkpoint_in_two_phases(served: RunningServer) -> None:
    """It is shown once it is committed, and is there for the next process."""
    begin_generation(served)
    push_ones(served)
    for path in ("/v1/prepare", "/v1/prepare", "/v1/commit", "/v1/commit"):
        assert call(served, "POST", path, {**WHO, "version": 1})[0] == 200, path
    assert call(served, "GET", "/v1/status")[1]["checkpoint"]["version"] == 1
    push_ones(served, 2)
    served.kill()
    served.start()

    state = call(served, "POST", "/v1/enter", {**WHO, "generation": 0})[1]
    assert state["have"] == [{"generation": 1, "version": 1, "of": 1}]
    assert (state["ready"], state["generation"]) == (False, 1)


@pytest.mark.parametrize("disk", ["works", "gone"])
def test_a_checkpoint_holds_memory_only_while_it_is_written(
    served: RunningServer, tmp_path: Path, disk: str
) -> None:
    """Written or failed: pushes after it need no copies, however many checkpoints there were."""
    begin_generation(served)
    if disk == "gone":
        (tmp_path / "digits").rename(tmp_path / "elsewhere")
    used = set()
    for number in range(1, 5):
        push_ones(served, number)
        who = {**WHO, "version": number}
        assert call(served, "POST", "/v1/prepare", who)[0] == (200 if disk == "works" else 507)
        push_ones(served, number + 10)
        memory = call(served, "GET", "/v1/status")[1]["serving"]["memory"]
        used.add((memory["used_bytes"], memory["held_bytes"]))

    assert len(used) == 1
    assert used.pop()[1] == 0
    if disk == "gone":
        (tmp_path / "elsewhere").rename(tmp_path / "digits")


def test_told_to_end_it_goes_on_where_it_was(served: RunningServer) -> None:
    """Once: killed after that, it starts empty, and no generation has the same number again."""
    begin_generation(served)
    push_ones(served)
    served.stop()
    served.start()
    assert push_ones(served)[1].meta["outcome"] == "repeated"
    assert push_ones(served, 2)[1].meta["version"] == 2
    served.kill()
    served.start()

    assert push_ones(served, 3)[0] == 409
    state = call(served, "POST", "/v1/enter", {**WHO, "generation": 0})[1]
    assert (state["ready"], state["generation"]) == (False, 1)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_bodies_of_pins_count_like_all_others(served: RunningServer, method: str) -> None:
    """Their bytes are reserved before they are read, so they must say how many there are."""
    link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    link.putrequest(method, "/v1/pins/7")
    link.putheader("Authorization", f"Bearer {TOKEN}")
    link.putheader("Transfer-Encoding", "chunked")
    link.endheaders()
    assert link.getresponse().status == 411
    link.close()


def test_pins_come_and_go(served: RunningServer) -> None:
    """By number."""
    begin_generation(served)
    push_ones(served)
    assert call(served, "PUT", "/v1/pins/7", WHO) == (200, {"version": 1})
    assert call(served, "DELETE", "/v1/pins/7", WHO)[0] == 200
    status, answer = call(served, "POST", "/v1/pull", {**WHO, "version": -1, "pin": 7})

    assert (status, answer["error"]["field"]) == (404, "pin")


def test_a_full_server_refuses_rows_and_says_how_many(tmp_path: Path) -> None:
    """The job goes on; the status has the count."""
    server = RunningServer(tmp_path, max_bytes=40_000)
    try:
        begin_generation(server)
        meta = {**WHO, "number": 1, "version": 0, "records": 1, "tables": ["words"]}
        rows = np.ones((2, 2), np.float32)
        status, answer = call(
            server, "POST", "/v1/push", framed(meta, ids_0=np.arange(2), rows_0=rows)
        )
        assert (status, answer.meta["refused"]) == (200, 2)
        state = call(server, "GET", "/v1/status")[1]
        assert state["serving"]["tables"]["words"]["refused"] == 2
        assert push_ones(server)[0] == 200
    finally:
        server.stop()


async def stuck() -> None:
    """All tasks of this loop have run as far as they can; none of them waits for a thread."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_bodies_wait_in_order() -> None:
    """A body above the limit is admitted alone."""

    async def run() -> list[str]:
        limit, admitted = InflightLimit(10), []

        async def body(name: str, size: int, ends: asyncio.Event) -> None:
            async with limit.reserve(size):
                admitted.append(name)
                await ends.wait()

        first, others = asyncio.Event(), asyncio.Event()
        others.set()
        tasks = [
            asyncio.create_task(body(*arguments))
            for arguments in (
                ("a", 6, first),
                ("b", 5, others),
                ("c", 4, others),
                ("d", 50, others),
            )
        ]
        await stuck()
        assert admitted == ["a"]
        tasks[1].cancel()
        await stuck()
        assert admitted == ["a", "c"]
        first.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert limit.used == 0
        return admitted

    assert asyncio.run(run()) == ["a", "c", "d"]


def test_a_body_that_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """503: the caller retries."""
    monkeypatch.setattr(inflight_limit, "WAIT_S", 0.01)

    async def run() -> None:
        limit = InflightLimit(10)
        async with limit.reserve(10):
            with pytest.raises(BusyError, match="too many bytes"):
                async with limit.reserve(1):
                    raise AssertionError("there is no room")
        assert limit.used == 0

    asyncio.run(run())
