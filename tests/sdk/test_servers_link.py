"""One connection to one server, and what answers may go wrong."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from edl.errors import EdlError
from edl.servers.errors import Away, Declined, Moved
from edl.servers.fan import Fan
from edl.servers.link import Link


class Peer:
    """Answers each connection with the next of some raw answers, and listens no more then."""

    def __init__(self, *answers: bytes) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        self.asked: list[bytes] = []
        self._thread = threading.Thread(target=self._run, args=(answers,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for its end."""
        self._thread.join(20)
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
def made() -> Iterator[Callable[[Peer], Link]]:
    """Makes links, and closes all."""
    links: list[tuple[Link, Peer]] = []

    def make(peer: Peer) -> Link:
        links.append((Link(peer.url, "secret"), peer))
        return links[-1][0]

    yield make
    for link, peer in links:
        link.close()
        peer.close()


@pytest.mark.parametrize(
    ("raw", "kind", "said"),
    [
        (b"", Away, "does not answer"),
        (b"hello\r\n\r\n", Away, "does not answer"),
        (b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{}", Away, "does not answer"),
        (b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n{}", Away, "does not say how long"),
        (answer(200, b"", b"").replace(b": 0", b": 9999999999"), Away, "is longer than"),
        (answer(200, b"<html>"), Away, "no JSON object"),
        (answer(200, b"[]"), Away, "no JSON object"),
        (answer(404, b"<html>"), Away, "answered 404"),
        (error(302), Away, "answered 302: said"),
        (error(503), Away, "answered 503: said"),
        (error(500), Away, "answered 500: said"),
        (error(422), Declined, r"said \(422\)"),
        (error(507), Declined, r"said \(507\)"),
        (error(409), Declined, r"said \(409\)"),
        (error(409, "generation"), Moved, "said"),
    ],
)
def test_answers_that_are_none(
    made: Callable[[Peer], Link], raw: bytes, kind: type[EdlError], said: str
) -> None:
    """Those that may differ next time are told apart from refusals."""
    with pytest.raises(kind, match=said) as caught:
        made(Peer(raw)).json("GET", "/v1/status")

    assert type(caught.value) is kind
    assert "secret" not in str(caught.value)


def test_a_damaged_frame_counts_as_no_answer(made: Callable[[Peer], Link]) -> None:
    """It is asked for again."""
    with pytest.raises(Away, match="was damaged"):
        made(Peer(answer(200, b"EDLF and not much more"))).fetch("/v1/pull", {})


def test_a_connection_that_was_closed_while_idle_is_opened_again(
    made: Callable[[Peer], Link],
) -> None:
    """Servers close those that nobody uses; the caller hears nothing of it."""
    peer = Peer(
        answer(200, b"{}"), answer(200, b'{"a": 1}'), answer(200, b"{}", b"Connection: close\r\n")
    )
    link = made(peer)
    assert link.json("GET", "/") == {}
    assert link.json("GET", "/") == {"a": 1}
    assert link.json("POST", "/", {"b": 2}) == {}
    assert peer.asked[2].startswith(b"POST / HTTP/1.1")
    with pytest.raises(Away, match="does not answer"):
        link.json("GET", "/")


def test_a_closed_link_says_so(made: Callable[[Peer], Link]) -> None:
    """It is not opened again."""
    peer = Peer()
    link = made(peer)
    link.close()
    with pytest.raises(Away, match="closed by this program"):
        link.json("GET", "/")


def test_a_link_that_is_closed_elsewhere_ends_a_call(made: Callable[[Peer], Link]) -> None:
    """Not when its time is over."""
    listening = socket.create_server(("127.0.0.1", 0))
    link = Link(f"http://127.0.0.1:{listening.getsockname()[1]}", "secret")
    said: list[BaseException] = []

    def call() -> None:
        try:
            link.json("GET", "/")
        except Away as found:
            said.append(found)

    thread = threading.Thread(target=call)
    thread.start()
    there, _ = listening.accept()
    there.recv(1 << 16)
    link.close()
    thread.join(20)  # an answer is waited for longer
    for each in (there, listening):
        each.close()
    del made

    assert len(said) == 1


def test_a_secure_address_is_spoken_to_securely(made: Callable[[Peer], Link]) -> None:
    """Who answers in plain text is no server of ours."""
    peer = Peer(answer(200, b"{}"))
    link = Link(peer.url.replace("http:", "https:"), "secret")
    with pytest.raises(Away, match="SSL"):
        link.json("GET", "/")
    peer.close()
    del made


def test_one_refusal_ends_the_call_to_all() -> None:
    """Who waits for a server that is away waits no more."""
    peer = Peer(error(422))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
    fan = Fan([gone, peer.url], "secret", 60.0, lambda: False)
    with pytest.raises(Declined, match="said"):
        fan.each(lambda link, _: link.json("GET", "/"))
    fan.close()
    peer.close()


def test_nothing_waits_once_the_program_is_to_end() -> None:
    """Nor for a link that was closed."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
    fan = Fan([gone], "secret", 60.0, lambda: True)
    with pytest.raises(Away, match="ConnectionRefused"):
        fan.each(lambda link, _: link.json("GET", "/"))
    fan.close()
    other = Fan([gone], "secret", 60.0, lambda: False)
    other.close()
    with pytest.raises(Away, match="closed by this program"):
        other.each(lambda link, _: link.json("GET", "/"))
