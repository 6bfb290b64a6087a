"""Requests with large bodies, against a server in this process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from flask import Response, request

from runtime import metrics, web
from runtime.connection import Bounds
from runtime.http_server import HttpServer, Service
from runtime.listener import bind
from tests.runtime.servers import START_S, wait_until

_MAX_BYTES = 12 * 1024
_LARGE, _SMALL = b"[" + b" " * 1024 + b"]", b"[]"
_BOUNDS = Bounds(64, 64, START_S, START_S, START_S, START_S, START_S)


class _Work:
    """The requests on which the threads of a server work; each goes on once the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.large = self.small = 0
        """Requests that were begun."""
        self._lock = threading.Lock()

    def answer(self) -> Response:
        """Counts a request, and waits if it is large."""
        if len(request.get_data()) <= len(_SMALL):
            with self._lock:
                self.small += 1
            return web.reply({})
        with self._lock:
            self.large += 1
        self.gate.wait(START_S)
        return web.reply({})


@pytest.fixture
def work() -> Iterator[_Work]:
    """Work that ends with the test."""
    work = _Work()
    yield work
    work.gate.set()


@contextmanager
def _serving(work: _Work) -> Iterator[tuple[str, int]]:
    """The address of a server with four threads."""
    app = web.application(
        "large",
        registry=metrics.Metrics("large"),
        readiness=lambda: web.Readiness(True),
        max_body_bytes=_MAX_BYTES,
    )
    app.add_url_rule("/work", "work", work.answer, methods=["POST"])
    listening = bind("127.0.0.1:0")
    service = Service(app, None, 4, _MAX_BYTES)
    server = HttpServer(service, listening, _BOUNDS, certificates=None, failed=lambda: None)
    address: tuple[str, int] = listening.getsockname()
    server.start()
    try:
        yield address
    finally:
        work.gate.set()
        server.stop(START_S)


def _send(address: tuple[str, int], body: bytes) -> socket.socket:
    caller = socket.create_connection(address, START_S)
    head = f"POST /work HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    caller.sendall(f"{head}\r\n\r\n".encode() + body)
    return caller


def test_one_request_with_a_large_body_is_worked_on_at_a_time(work: _Work) -> None:
    """Others wait without a thread: four bodies of 3 MiB may become more than a server's memory as objects."""
    with _serving(work) as address:
        callers = [_send(address, _LARGE) for _ in range(4)]
        wait_until(lambda: work.large)
        for _ in range(4):  # as many as threads: the waiting ones hold none
            with _send(address, _SMALL) as small:
                assert small.recv(64).startswith(b"HTTP/1.1 200")
        begun_together = work.large
        work.gate.set()
        answers = [caller.recv(64) for caller in callers]
        for caller in callers:
            caller.close()

    assert (begun_together, work.small) == (1, 4)
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)


def test_a_caller_that_gives_up_leaves_the_turn_with_its_request(work: _Work) -> None:
    """The thread still has the body: the next large one waits for it, not for the connection."""
    with _serving(work) as address:
        gone = _send(address, _LARGE)
        wait_until(lambda: work.large)
        gone.close()
        waiting = _send(address, _LARGE)
        for _ in range(4):
            with _send(address, _SMALL) as small:
                assert small.recv(64).startswith(b"HTTP/1.1 200")
        begun_together = work.large
        work.gate.set()
        answer = waiting.recv(64)
        waiting.close()

    assert begun_together == 1
    assert answer.startswith(b"HTTP/1.1 200")
