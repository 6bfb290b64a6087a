"""The HTTP server that master and parameter servers share: errors, limits, and its end."""

import asyncio
import contextlib
import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from runtime import job_server
from runtime.call_metrics import CallMetrics
from runtime.job_server import Handler, application, json_answer, read_body, serving
from runtime.metrics import Metrics
from tests.support.thread_server import ThreadServer

TOKEN = "token-of-a-job-of-tests"  # noqa: S105 - of a server that lives as long as a test
MAX_BYTES = 100


class FullError(Exception):
    """Something that may work later."""


async def echo(request: web.Request) -> web.Response:
    """Answers the size of the body."""
    return json_answer({"bytes": len(await read_body(request))})


def fails(error: Exception) -> Handler:
    """A handler that fails."""

    async def handle(_: web.Request) -> web.Response:
        raise error

    return handle


def make(metrics: Metrics) -> web.Application:
    """An application with these handlers."""
    return application(
        [
            web.post("/echo", echo),
            web.post("/full", fails(FullError("the disk is full"))),
            web.post("/bug", fails(KeyError("secret"))),
            web.post("/gone", fails(ConnectionResetError())),
        ],
        name="the attic",
        token=TOKEN,
        calls=CallMetrics(metrics),
        max_bytes=MAX_BYTES,
        temporary={FullError: 507},
    )


class Attic(ThreadServer):
    """The application in a thread."""

    def __init__(self) -> None:
        super().__init__(0)
        self.metrics = Metrics("attic")
        self.stopped = 0
        self.start()

    async def run(self) -> None:
        """See ThreadServer."""

        async def stop() -> None:
            self.stopped += 1

        await self.serve(make(self.metrics), stop, stop)


@pytest.fixture
def attic() -> Iterator[Attic]:
    """A server."""
    server = Attic()
    yield server
    server.stop()


def call(
    server: Attic, path: str, body: bytes = b"", token: str = TOKEN, **headers: str
) -> tuple[int, Any, Any]:
    """Status, body and headers of an answer."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        link.request("POST", path, body, {"Authorization": f"Bearer {token}", **headers})
        answer = link.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        link.close()


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/echo", b" " * (MAX_BYTES + 1), 413, "the body is longer than 100 bytes"),
        ("/full", b"", 507, "the disk is full"),
        ("/bug", b"", 500, "the attic could not answer; see its log for the reason"),
        ("/nothing", b"", 404, "Not Found"),
    ],
)
def test_every_error_has_the_same_shape(
    attic: Attic, path: str, body: bytes, status: int, message: str
) -> None:
    """Nothing of a bug is revealed, and the server continues."""
    assert call(attic, path, body)[:2] == (
        status,
        {"error": {"status": status, "message": message}},
    )
    assert call(attic, "/echo", b"12")[:2] == (200, {"bytes": 2})


def test_a_wrong_token_is_refused(attic: Attic) -> None:
    """With the scheme that is expected."""
    status, answer, headers = call(attic, "/echo", token="wrong")  # noqa: S106 - a wrong one

    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="edl"')
    assert "the job's token is missing or wrong" in answer["error"]["message"]


def test_a_body_that_does_not_arrive_is_refused(
    attic: Attic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that stalls must not hold a connection for ever."""
    monkeypatch.setattr(job_server, "BODY_S", 0.05)
    with socket.create_connection(("127.0.0.1", attic.port)) as link:
        head = f"POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        link.sendall(f"{head}Content-Length: 10\r\n\r\n123".encode())
        answer = http.client.HTTPResponse(link)
        answer.begin()

        assert answer.status == 408
        assert b"did not arrive within 0.05 s" in answer.read()


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nX-Slow: "])
def test_connections_without_a_request_end(
    attic: Attic, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """Silent ones after a while, those with half a head soon; others are answered meanwhile."""
    bounds = replace(job_server.BOUNDS, head_s=0.05, idle_s=0.1)
    monkeypatch.setattr(job_server, "BOUNDS", bounds)
    server = Attic()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
            link.sendall(begun)
            received = link.recv(1)
    finally:
        server.stop()

    assert received == b""
    assert call(attic, "/echo", b"12")[:2] == (200, {"bytes": 2})


def test_a_head_without_end_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in memory, and needs no token: 16 KiB of it end the connection, however long it may take."""
    monkeypatch.setattr(job_server, "BOUNDS", replace(job_server.BOUNDS, head_s=600.0))
    attic = Attic()
    with socket.create_connection(("127.0.0.1", attic.port), timeout=60) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for number in range(6):
                stranger.sendall(b"X-%d: %s\r\n" % (number, b"a" * 3_000))
            assert stranger.recv(1) == b""
    assert call(attic, "/echo", b"12", **{"X-Long": "a" * 4_000})[0] == 200
    assert b'connections_dropped_total{reason="head"} 1.0' in attic.metrics.text()
    attic.stop()


def test_what_is_not_http_is_counted(attic: Attic, caplog: pytest.LogCaptureFixture) -> None:
    """A stranger without a token cannot fill the log: a line sums up a minute."""
    chunked = f"POST /echo HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked"
    for garbage in ("\x16\x03\x01", "GET / HTTP/9.9", "GET / HTTP/1.1\r\n:", f"{chunked}\r\n\r\nx"):
        with socket.create_connection(("127.0.0.1", attic.port), timeout=60) as link:
            link.sendall(f"{garbage}\r\n\r\n".encode())
            link.recv(4096)

    text = attic.metrics.text().decode()
    assert 'edl_attic_connections_dropped_total{reason="malformed"} 4.0' in text
    assert [record.message for record in caplog.records] == ["connections dropped"]


def test_a_compressed_body_is_refused(attic: Attic) -> None:
    """It would be a thousand times as long in memory as the limits say."""
    body = gzip.compress(b" " * MAX_BYTES)

    status, answer, _ = call(attic, "/echo", body, **{"Content-Encoding": "gzip"})

    assert (status, answer["error"]["message"][:16]) == (415, "Content-Encoding")


def test_garbage_that_claims_to_be_compressed_is_not_unpacked(
    attic: Attic, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even to throw it away: it would fill the log with tracebacks, without a token."""
    encoding = {"Content-Encoding": "gzip"}

    assert call(attic, "/echo", b"garbage", token="wrong", **encoding)[0] == 401  # noqa: S106 - a wrong one
    assert call(attic, "/echo", b"garbage", **encoding)[0] == 415
    assert not caplog.records


def test_a_full_disk_is_logged_once(attic: Attic, caplog: pytest.LogCaptureFixture) -> None:
    """Not with each call: the log may be on that disk."""
    for _ in range(3):
        call(attic, "/full")

    assert [record.message for record in caplog.records].count("the disk is full") == 1


def test_calls_are_counted_by_their_route(attic: Attic, caplog: pytest.LogCaptureFixture) -> None:
    """A caller that has disconnected is no error."""
    call(attic, "/echo")
    call(attic, "/nothing")
    with pytest.raises(ConnectionError):
        call(attic, "/gone")
    text = attic.metrics.text().decode()

    for labels in (
        'path="/echo",status="200"',
        'path="unknown",status="404"',
        'path="/gone",status="499"',
    ):
        assert f"edl_attic_calls_total{{{labels}}} 1.0" in text
    assert not caplog.records


def test_a_service_is_stopped_even_where_the_address_is_taken(attic: Attic) -> None:
    """What it has opened before is closed."""
    ended: list[str] = []

    async def stop() -> None:
        ended.append("stopped")

    async def serve() -> None:
        async with serving(make(Metrics("attic")), f"127.0.0.1:{attic.port}", stop):
            ended.append("served")

    with pytest.raises(
        OSError, match=r"^cannot listen on 127\..*Address already in use.*choose another --listen$"
    ):
        asyncio.run(serve())
    attic.stop()

    assert ended == ["stopped"]
    assert attic.stopped == 1
