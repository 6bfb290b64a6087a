import socket
from collections import deque
from typing import Any

import pytest
from edl import Refused, Unavailable
from edl.backoff import Backoff
from edl.master import protocol
from edl.master.connection import Connection

from tests.sdk.support.fake_master import Json
from tests.sdk.support.master_server import TOKEN, Handler, Server


@pytest.fixture
def link(server: Server) -> Any:
    """A connection to a master in memory."""
    connection = Connection(server.url, TOKEN)
    yield connection
    connection.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux's TCP options")
def test_a_silent_host_ends_the_connection_within_seconds(link: Connection) -> None:
    """The kernel is told to look whether the master's host lives, idle or not."""
    link.call("GET", "/v1/status")
    opened = link._socket  # noqa: SLF001 - no host can be switched off here
    assert opened is not None

    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    probes = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
    idle_s, every_s, count = (
        opened.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in probes
    )
    assert idle_s + every_s * count <= 5
    assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000


def _status(code: int, raw: bytes) -> Any:
    def before(handler: Handler, _: Json) -> bool:
        handler.say(code, raw)
        return True

    return before


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 507])
def test_a_master_in_trouble_is_asked_again(server: Server, link: Connection, status: int) -> None:
    """These answers may differ next time."""
    server.faults["/v1/status"] = deque([_status(status, b'{"error": {"message": "busy"}}')])
    with pytest.raises(Unavailable, match=f"answered {status}: busy"):
        link.call("GET", "/v1/status")


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 422])
def test_a_refusal_is_final(server: Server, link: Connection, status: int) -> None:
    """It carries the field it is about."""
    raw = b'{"error": {"message": "no", "field": "epochs"}}'
    server.faults["/v1/status"] = deque([_status(status, raw)])
    with pytest.raises(Refused, match="no") as caught:
        link.call("GET", "/v1/status")

    assert (caught.value.status, caught.value.field) == (status, "epochs")


@pytest.mark.parametrize(
    ("status", "raw"), [(200, b"<html>"), (200, b"[1]"), (404, b"nginx"), (302, b"{}")]
)
def test_an_answer_that_is_none_of_ours_counts_as_none(
    server: Server, link: Connection, status: int, raw: bytes
) -> None:
    """A proxy's page, for example."""
    server.faults["/v1/status"] = deque([_status(status, raw)])
    with pytest.raises(Unavailable):
        link.call("GET", "/v1/status")


def test_an_idle_connection_that_was_cut_is_opened_again(server: Server, link: Connection) -> None:
    """The master was restarted meanwhile: the caller does not notice."""
    link.call("GET", "/v1/status")
    server.stop()
    server.start()

    assert link.call("GET", "/v1/status")["job"] == "digits"


def test_nobody_there_is_said_in_one_line(server: Server, link: Connection) -> None:
    """With the address; later calls work."""
    server.stop()
    with pytest.raises(Unavailable, match=f"master at 127.0.0.1:{server.port} does not answer"):
        link.call("GET", "/v1/status")
    server.start()

    assert link.call("GET", "/v1/status")["job"] == "digits"


def test_https_is_spoken_where_it_is_asked_for(server: Server) -> None:
    """A master that does not speak it does not answer, and no token reaches it."""
    link = Connection(f"https://127.0.0.1:{server.port}/prefix", TOKEN)
    with pytest.raises(Unavailable, match="SSL"):
        link.call("GET", "/v1/status")
    link.close()

    assert server.calls == []


def test_a_call_that_waits_can_be_interrupted(server: Server, link: Connection) -> None:
    """Closing from another thread ends it at once; an answer without end is refused."""

    def before(handler: Handler, _: Json) -> bool:
        link.close()
        handler.cut()
        return True

    server.faults["/v1/status"] = deque([before])
    with pytest.raises(Unavailable):
        link.call("GET", "/v1/status")


def test_a_call_that_was_interrupted_is_not_sent_again(server: Server, link: Connection) -> None:
    """Who leaves would wait for it to the end, into SIGKILL; calls that come later work."""
    link.call("GET", "/v1/status")

    def before(handler: Handler, _: Json) -> bool:
        link.interrupt()
        handler.cut()
        return True

    server.faults["/v1/status"] = deque([before])
    with pytest.raises(Unavailable):
        link.call("GET", "/v1/status")
    assert len(server.calls) == 2

    assert link.call("GET", "/v1/status")["job"] == "digits"


def test_an_answer_that_is_too_long_counts_as_none(
    server: Server, link: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not even read."""
    monkeypatch.setattr("edl.master.connection._MAX_BYTES", 10)
    server.faults["/v1/status"] = deque([_status(200, b"{}" + b" " * 20)])
    with pytest.raises(Unavailable, match="longer than 10 bytes"):
        link.call("GET", "/v1/status")


def test_a_closed_connection_stays_closed(link: Connection) -> None:
    """Closing twice is harmless."""
    link.close()
    with pytest.raises(Unavailable, match="this program has closed the connection"):
        link.call("GET", "/v1/status")


@pytest.mark.parametrize(
    "body",
    [
        {"state": "maybe"},
        {"state": 3},
        {"state": "work", "tasks": {}},
        {"state": "work", "tasks": [3]},
        {"state": "work", "tasks": [{"start": 0, "end": 0}]},
        {"state": "work", "tasks": [{"start": 0, "end": 4, "task": 3}]},
        {"state": "work", "tasks": [{"start": True, "end": 4}]},
        {"state": "work", "safe": -1},
    ],
)
def test_a_malformed_answer_counts_as_none(body: Json) -> None:
    """The call is repeated: it may have been cut or come from a stranger."""
    with pytest.raises(Unavailable):
        protocol.parse_work(body)


def test_waits_double_up_to_a_limit() -> None:
    """They start again from the first pause after a success."""
    backoff = Backoff(first_s=1, max_s=5, jitter=lambda: 1.0)

    assert [backoff.next_s() for _ in range(4)] == [1, 2, 4, 5]
    backoff.reset()
    assert backoff.next_s() == 1
