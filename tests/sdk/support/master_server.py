"""A small real HTTP server around `FakeMaster`, with faults like those of real servers."""

import json
import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.sdk.support.fake_master import FakeMaster, Json, RefusedError

TOKEN = "token-of-many-digits"  # noqa: S105 - of a server that lives as long as a test
Fault = Callable[["Handler", Json], bool]
"""Spoils an answer; returns True where the handler must not send it."""


class Server:
    """Listens on a port of its own; `stop` and `start` are a master's death and return."""

    def __init__(self, master: FakeMaster) -> None:
        self.master = master
        self.faults: dict[str, deque[Fault]] = {}
        """Path -> the faults of its next answers."""
        self.calls: list[tuple[str, Json]] = []
        self._http: _Http | None = None
        self._thread: threading.Thread | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        """The value of EDL_MASTER."""
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
        self._thread.join(60)

    def bodies(self, path: str) -> list[Json]:
        """Bodies of the calls of a path."""
        return [body for called_path, body in self.calls if called_path == path]


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
        for connection in list(self.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was cut is what this server is for."""


class Handler(BaseHTTPRequestHandler):
    """Routes requests to the fake master."""

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
        master = self.server_of.master
        plain: dict[str, Callable[[Json], Json]] = {
            "/v1/join": master.join,
            "/v1/heartbeat": master.heartbeat,
            "/v1/leave": master.leave,
            "/v1/checkpoints": master.request_save,
            "/v1/rendezvous": master.poll_rendezvous,
            "/v1/rendezvous/leave": master.rendezvous.leave,
            "/v1/fail": master.fail,
            "/v1/setbacks": master.report_rollback,
        }
        if self.path == "/v1/work":
            return self._work(body)
        with master.changed:
            try:
                if self.path in plain:
                    return plain[self.path](body)
                if self.path == "/v1/status":
                    return master.status()
                return self._named(body)
            finally:
                master.changed.notify_all()

    def _named(self, body: Json) -> Json:
        master = self.server_of.master
        if match := re.fullmatch(r"/v1/datasets/(.+)", self.path):
            return master.describe(match[1], body)
        if match := re.fullmatch(r"/v1/checkpoints/(.+)", self.path):
            return master.report_saved(match[1], body)
        raise RefusedError(404, f"there is no {self.path}")

    def _work(self, body: Json) -> Json:
        master = self.server_of.master
        with master.changed:
            answer, waits = master.work(body)
            if waits and body["wait_s"] > 0:
                master.changed.wait(body["wait_s"])
                answer = master.after_waiting(body, answer)
            master.changed.notify_all()
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
