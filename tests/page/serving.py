"""The page's server on a thread of this process, and a client of its streams."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse

from runtime import listener
from runtime.connection import Bounds
from runtime.http_server import HttpServer, Service
from runtime.web import WebApp

LIMIT_S = 60.0
"""Ends a hang."""
_BUFFER_BYTES = 4096
"""Of each socket, so that a reader that sleeps is noticed soon."""


@contextmanager
def serving(app: WebApp, answer_s: float = LIMIT_S) -> Iterator[tuple[str, int]]:
    """Serves an application on a free port.

    Args:
        app: The application.
        answer_s: How long a peer may take to read.
    """
    bounds = Bounds(64, 64, LIMIT_S, LIMIT_S, LIMIT_S, answer_s, LIMIT_S)
    bound = listener.bind("127.0.0.1:0")
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)  # connections inherit it
    failures: list[str] = []
    server = HttpServer(
        Service(app, None, 4, 1 << 20),
        bound,
        bounds,
        certificates=None,
        failed=lambda: failures.append("server"),
    )
    address: tuple[str, int] = bound.getsockname()
    server.start()
    try:
        yield address
    finally:
        app.draining = True
        server.stop(LIMIT_S)
        assert not failures


class Readers(ExitStack):
    """Opens streams of one server, and closes all of them at the end."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Opens none."""
        super().__init__()
        self._address = address

    def open(self, path: str, method: str = "GET", **headers: str) -> "StreamReader":
        """Opens a stream."""
        reader = StreamReader(self._address, path, method, **headers)
        self.callback(reader.close)
        return reader


class StreamReader:
    """A browser that reads one stream."""

    def __init__(
        self, address: tuple[str, int], path: str, method: str = "GET", **headers: str
    ) -> None:
        """Opens it."""
        self._connection = HTTPConnection(*address, timeout=LIMIT_S)
        self._connection.sock = sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        sock.settimeout(LIMIT_S)
        sock.connect(address)
        words = {
            "Authorization": "Bearer admin",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        self._connection.request(method, path, headers=words)
        self.response: HTTPResponse = self._connection.getresponse()
        self.ident = ""

    def blocks(self) -> Iterator[str]:
        """Blocks of lines as they come, comments included, until the stream ends."""
        lines: list[str] = []
        for raw in self.response:
            line = raw.decode().rstrip("\n")
            if line.startswith("id: "):
                self.ident = line[4:]
            if line:
                lines.append(line)
            elif lines:
                yield "\n".join(lines)
                lines = []

    def close(self) -> None:
        """Goes away."""
        self.response.close()
        self._connection.close()
