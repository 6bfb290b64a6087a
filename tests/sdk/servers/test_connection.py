"""One connection to one server, and what answers may go wrong."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from time import sleep

import pytest
from edl.errors import EdlError
from edl.master.connection import Connection
from edl.servers.connection import PserverConnection
from edl.servers.errors import GenerationChanged, RequestRefused, ServersUnavailable
from edl.servers.fan_out import FanOut


class Peer:
    """Answers each connection with the next of some raw answers, then stops listening."""

    def __init__(self, *answers: bytes) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        self.asked: list[bytes] = []
        self._thread = threading.Thread(target=self._run, args=(answers,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for its end."""
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self, answers: tuple[bytes, ...]) -> None:
        for raw in answers:
            link, _ = self._listening.accept()
            with link, contextlib.suppress(OSError):
                self.asked.append(link.recv(1 << 16))
                link.sendall(raw)
                link.shutdown(socket.SHUT_WR)
                while link.recv(1 << 16):
                    pass
        self._listening.close()


def answer(status: int, body: bytes, head: bytes = b"") -> bytes:
    """A whole one."""
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), head, body)


def error(status: int, field: str = "x") -> bytes:
    """As servers refuse."""
    body = b'{"error": {"status": 1, "message": "said", "field": "%s"}}' % field.encode()
    return answer(status, body)


@pytest.fixture
def make_connection() -> Iterator[Callable[[Peer], PserverConnection]]:
    """Makes links, and closes all."""
    links: list[tuple[PserverConnection, Peer]] = []

    def make(peer: Peer) -> PserverConnection:
        links.append((PserverConnection(peer.url, "secret"), peer))
        return links[-1][0]

    yield make
    for link, peer in links:
        link.close()
        peer.close()


@pytest.mark.parametrize(
    ("raw", "kind", "message"),
    [
        (b"", ServersUnavailable, "does not answer"),
        (b"hello\r\n\r\n", ServersUnavailable, "does not answer"),
        (b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{}", ServersUnavailable, "does not answer"),
        (
            b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n{}",
            ServersUnavailable,
            "has no Content-Length",
        ),
        (
            answer(200, b"", b"").replace(b": 0", b": 9999999999"),
            ServersUnavailable,
            "is longer than",
        ),
        (answer(200, b"<html>"), ServersUnavailable, "not a JSON object"),
        (answer(200, b"[]"), ServersUnavailable, "not a JSON object"),
        (answer(404, b"<html>"), ServersUnavailable, "answered 404"),
        (error(302), ServersUnavailable, "answered 302: said"),
        (error(503), ServersUnavailable, "answered 503: said"),
        (error(500), ServersUnavailable, "answered 500: said"),
        (error(422), RequestRefused, r"said \(422\)"),
        (error(507), RequestRefused, r"said \(507\)"),
        (error(409), RequestRefused, r"said \(409\)"),
        (error(409, "generation"), GenerationChanged, "said"),
    ],
)
def test_answers_that_are_none(
    make_connection: Callable[[Peer], PserverConnection],
    raw: bytes,
    kind: type[EdlError],
    message: str,
) -> None:
    """Errors that a retry may fix are distinguished from refusals."""
    with pytest.raises(kind, match=message) as caught:
        make_connection(Peer(raw)).json("GET", "/v1/status")

    assert type(caught.value) is kind
    assert "secret" not in str(caught.value)


def test_a_damaged_frame_counts_as_no_answer(
    make_connection: Callable[[Peer], PserverConnection],
) -> None:
    """It is asked for again."""
    with pytest.raises(ServersUnavailable, match="is damaged"):
        make_connection(Peer(answer(200, b"EDLF and not much more"))).fetch_frame("/v1/pull", {})


def test_a_connection_that_was_closed_while_idle_is_opened_again(
    make_connection: Callable[[Peer], PserverConnection],
) -> None:
    """Servers close idle connections; the caller does not notice."""
    peer = Peer(
        answer(200, b"{}"), answer(200, b'{"a": 1}'), answer(200, b"{}", b"Connection: close\r\n")
    )
    link = make_connection(peer)
    assert link.json("GET", "/") == {}
    assert link.json("GET", "/") == {"a": 1}
    assert link.json("POST", "/", {"b": 2}) == {}
    assert peer.asked[2].startswith(b"POST / HTTP/1.1")
    with pytest.raises(ServersUnavailable, match="does not answer"):
        link.json("GET", "/")


def test_only_the_master_has_to_take_a_request_at_once(
    make_connection: Callable[[Peer], PserverConnection],
) -> None:
    """The kernel asks silent hosts of both whether they live; bodies for servers it lets wait.

    For the other connection it counts bytes that are not read yet like those of a lost host.
    """
    server, master_peer = make_connection(Peer(answer(200, b"{}"))), Peer(answer(200, b"{}"))
    master = Connection(master_peer.url, "secret")
    server.json("GET", "/")
    master.call("GET", "/")
    options = [
        (
            opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
        )
        for opened in (server._socket, master._socket)  # noqa: SLF001
        if opened is not None
    ]
    master.close()
    master_peer.close()

    assert options == [(1, 0), (1, 5_000)]


@pytest.mark.soak  # the kernel's clock counts
def test_a_server_may_read_a_large_body_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers with too many bytes in flight leave a push unread for up to 30 s; their host is alive."""
    monkeypatch.setattr("edl.master.connection._SILENT_HOST_S", 3)
    body = memoryview(bytes(32 << 20))

    def serve(listening: socket.socket) -> None:
        link, _ = listening.accept()
        with link:
            sleep(4)
            left = len(body)  # the header comes on top
            while left > 0:
                left -= len(link.recv(1 << 20))
            link.sendall(answer(200, b"{}"))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve, args=(listening,), daemon=True)
        server.start()
        link = PserverConnection(f"http://127.0.0.1:{listening.getsockname()[1]}", "secret")

        assert link.send_frame("/v1/push", [body], 20) == {}
        server.join(60)
        link.close()


def test_a_closed_link_says_so(make_connection: Callable[[Peer], PserverConnection]) -> None:
    """It is not opened again."""
    peer = Peer()
    link = make_connection(peer)
    link.close()
    with pytest.raises(ServersUnavailable, match="this program has closed the connection"):
        link.json("GET", "/")


def test_a_link_that_is_closed_elsewhere_ends_a_call(
    make_connection: Callable[[Peer], PserverConnection],
) -> None:
    """Not when its time is over."""
    listening = socket.create_server(("127.0.0.1", 0))
    link = PserverConnection(f"http://127.0.0.1:{listening.getsockname()[1]}", "secret")
    errors: list[BaseException] = []

    def call() -> None:
        try:
            link.json("GET", "/", answer_s=600)
        except ServersUnavailable as found:
            errors.append(found)

    thread = threading.Thread(target=call)
    thread.start()
    accepted, _ = listening.accept()
    accepted.recv(1 << 16)
    link.close()
    thread.join(60)
    for connection in (accepted, listening):
        connection.close()
    del make_connection

    assert len(errors) == 1


def test_a_secure_address_is_spoken_to_securely(
    make_connection: Callable[[Peer], PserverConnection],
) -> None:
    """A server that answers in plain text is not ours."""
    peer = Peer(answer(200, b"{}"))
    link = PserverConnection(peer.url.replace("http:", "https:"), "secret")
    with pytest.raises(ServersUnavailable, match="SSL"):
        link.json("GET", "/")
    peer.close()
    del make_connection


def test_one_refusal_ends_the_call_to_all() -> None:
    """Calls that wait for an unreachable server end."""
    peer = Peer(error(422))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead_url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    fan = FanOut([dead_url, peer.url], "secret", 60.0, lambda: False)
    with pytest.raises(RequestRefused, match="said"):
        fan.call_all(lambda link, _: link.json("GET", "/"))
    fan.close()
    peer.close()


def test_nothing_waits_once_the_program_is_to_end() -> None:
    """Nor for a link that was closed."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead_url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    fan = FanOut([dead_url], "secret", 60.0, lambda: True)
    with pytest.raises(ServersUnavailable, match="ConnectionRefused"):
        fan.call_all(lambda link, _: link.json("GET", "/"))
    fan.close()
    other = FanOut([dead_url], "secret", 60.0, lambda: False)
    other.close()
    with pytest.raises(ServersUnavailable, match="this program has closed the connection"):
        other.call_all(lambda link, _: link.json("GET", "/"))
