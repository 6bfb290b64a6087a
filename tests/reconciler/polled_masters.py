"""Masters that answer as a test says, and a poller that asks them; with real sockets."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kube.api import Api
from reconciler.masters.poll_schedule import PollTarget
from reconciler.masters.poller import MasterPoller
from tests.reconciler.server import Clock

LONG_S = 60.0
"""More than any test waits."""
TARGET = PollTarget("ml", "net-master", "127.0.0.1", "secret")


def answer(body: bytes, status: str = "200 OK") -> bytes:
    """A whole answer of HTTP."""
    return f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n".encode() + body


def page(**fields: Any) -> bytes:
    """A status page with these fields."""
    return answer(json.dumps(fields).encode())


class Master(socketserver.ThreadingTCPServer):
    """A master that answers every request with `page` and records the request."""

    daemon_threads = True
    request_queue_size = 64  # more than ask at one time

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.page = page(state="work")
        self.silent = threading.Event()
        """Once set, questions are heard and not answered before `leave`."""
        self.leave = threading.Event()
        self.asked: list[bytes] = []
        self.open = 0
        """Questions that are heard and not answered yet."""
        self.most_open = 0
        self.cut_off = threading.Event()
        """Set once who asked ended the connection within an answer."""
        self.lock = threading.Lock()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


class _Handler(socketserver.StreamRequestHandler):
    server: Master

    def handle(self) -> None:
        """One question."""
        lines = iter(self.rfile.readline, b"\r\n")
        with self.server.lock:
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        self.server.asked.append(b"".join(lines))
        if self.server.silent.is_set():
            self.server.leave.wait(LONG_S)
        with self.server.lock:
            self.server.open -= 1
        try:
            self.wfile.write(self.server.page)
        except OSError:
            self.server.cut_off.set()


@contextmanager
def running(
    api: Api, port: int, changed: Callable[[], None] = lambda: None, time: Clock | None = None
) -> Iterator[MasterPoller]:
    """Asks masters at `port`, by a clock that stands still unless `time` is moved."""
    clock_s = (time or Clock()).seconds
    poller = MasterPoller(api, changed=changed, clock_s=clock_s, monotonic_s=clock_s, port=port)
    poller.start()
    try:
        yield poller
    finally:
        poller.stop()
