"""A small real HTTP server around `Books`, which can be made to fail in the ways servers do."""

import json
import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.sdk.books import Books, Json, RefusedError

TOKEN = "token-of-many-digits"  # noqa: S105 - of a server that lives as long as a test
Fault = Callable[["Handler", Json], bool]
"""Does something wrong with an answer; True where the handler must not send it."""


class Server:
    """Listens on a port of its own; `stop` and `start` are a master's death and return."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.faults: dict[str, deque[Fault]] = {}
        """Path -> what goes wrong with its next answers."""
        self.calls: list[tuple[str, Json]] = []
        self._http: _Http | None = None
        self._thread: threading.Thread | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        """What EDL_MASTER says."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return 0 if self._http is None else len(self._http.open)

    def start(self) -> None:
        """Listens, on the same port as before."""
        handler = type("Bound", (Handler,), {"server_of": self})
        self._http = _Http(("127.0.0.1", self.port), handler)
        self.port = self._http.server_port
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Listens no more, and cuts every connection."""
        http, self._http = self._http, None
        if http is None or self._thread is None:
            return
        http.shutdown()
        http.server_close()
        self._thread.join(25)

    def told(self, path: str) -> list[Json]:
        """Bodies that came to a path."""
        return [body for found, body in self.calls if found == path]


class _Http(ThreadingHTTPServer):
    """Cuts its connections when it closes, as a process that dies does."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remembers a connection."""
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forgets it."""
        self.open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Cuts all."""
        super().server_close()
        for one in list(self.open):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was cut is what this server is for."""


class Handler(BaseHTTPRequestHandler):
    """Routes."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_of: Server

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        """Reads."""
        self._handle()

    def do_POST(self) -> None:
        """Acts."""
        self._handle()

    def do_PUT(self) -> None:
        """Describes."""
        self._handle()

    def say(self, status: int, raw: bytes) -> None:
        """Sends an answer."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def cut(self) -> None:
        """Ends the connection without a word."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _handle(self) -> None:
        server = self.server_of
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else {}
        server.calls.append((self.path, body))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._error(401, "the token is not this job's", None)
            return
        faults = server.faults.get(self.path)
        if faults and faults[0].__name__.startswith("before") and faults.popleft()(self, body):
            return
        try:
            answer = self._route(body)
        except RefusedError as refusal:
            self._error(refusal.status, str(refusal), refusal.named)
            return
        faults = server.faults.get(self.path)
        if faults and faults.popleft()(self, answer):
            return
        self.say(200, json.dumps(answer).encode())

    def _route(self, body: Json) -> Json:
        books = self.server_of.books
        plain: dict[str, Callable[[Json], Json]] = {
            "/v1/join": books.join,
            "/v1/heartbeat": books.heartbeat,
            "/v1/leave": books.leave,
            "/v1/checkpoints": books.ask_to_save,
            "/v1/rendezvous": books.meet,
            "/v1/rendezvous/leave": books.meeting.leave,
            "/v1/fail": books.fail,
            "/v1/setbacks": books.setback,
        }
        if self.path == "/v1/work":
            return self._work(body)
        with books.changed:
            try:
                if self.path in plain:
                    return plain[self.path](body)
                if self.path == "/v1/status":
                    return books.status()
                return self._named(body)
            finally:
                books.changed.notify_all()

    def _named(self, body: Json) -> Json:
        books = self.server_of.books
        if found := re.fullmatch(r"/v1/datasets/(.+)", self.path):
            return books.describe(found[1], body)
        if found := re.fullmatch(r"/v1/checkpoints/(.+)", self.path):
            return books.saved(found[1], body)
        raise RefusedError(404, f"there is no {self.path}")

    def _work(self, body: Json) -> Json:
        books = self.server_of.books
        with books.changed:
            answer, waits = books.work(body)
            if waits and body["wait_s"] > 0:
                books.changed.wait(body["wait_s"])
                books.forget_answer(body)
                answer, _ = books.work(body)
            books.changed.notify_all()
            return dict(answer)

    def _error(self, status: int, message: str, named: str | None) -> None:
        error = {"status": status, "message": message, "field": named}
        self.say(status, json.dumps({"error": error}).encode())


def lost(handler: Handler, _: Json) -> bool:
    """The answer never arrives, though the master did what it was asked."""
    handler.cut()
    return True


def garbage(handler: Handler, _: Json) -> bool:
    """A proxy's page instead of an answer."""
    handler.say(200, b"<html>hello</html>")
    return True


def before_away(handler: Handler, _: Json) -> bool:
    """503, and nothing was done."""
    handler.say(503, b'{"error": {"status": 503, "message": "starting"}}')
    return True
