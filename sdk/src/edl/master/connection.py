"""Keep-alive HTTP connections with bounded waits; `Connection` calls the master in JSON.

`edl.servers.connection` extends `KeepAliveConnection` for parameter servers.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from edl import json_text
from edl.errors import EdlError, Unavailable, one_line
from edl.master import protocol
from edl.overriding import override
from edl_protocol.master import VERSION, VERSION_HEADER

CONNECT_S = 3.0
ANSWER_S = 15.0
_SILENT_HOST_S = 5
_MAX_BYTES = 64 << 20
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_REFUSALS = range(400, 500)
_OK = range(200, 300)

T = TypeVar("T")
Transfer = Callable[[http.client.HTTPConnection], "tuple[http.client.HTTPResponse, T]"]
"""Sends a request over a connection and reads the whole answer."""


class KeepAliveConnection:
    """One HTTP connection, opened when needed, and reopened if the server closed it while idle.

    A lock admits one thread at a time; any thread may call `close` and `interrupt`.
    """

    peer = "the server"
    """Name of the server in error messages."""
    unavailable_error: type[EdlError] = EdlError
    """Type of the error that is raised if there is no answer."""
    sends_large_bodies = False
    """Whether bodies can exceed the socket buffers of a live host whose server reads slowly."""

    def __init__(self, url: str) -> None:
        """Parses the URL, without connecting yet.

        Args:
            url: URL of the server, `http` or `https`; its path is a prefix for the paths of all calls.
        """
        parts = urlsplit(url)
        self.address = parts.netloc
        self._host, self._port = parts.hostname or "", parts.port
        self._prefix = parts.path.rstrip("/")
        self._secure = parts.scheme == "https"
        self._lock = threading.Lock()
        self._http: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._closed = False
        self._interrupted = False

    def close(self) -> None:
        """Closes the connection for good and aborts a call that is waiting in another thread."""
        self._closed = True
        self.interrupt()
        if self._lock.acquire(timeout=1):
            try:
                self._drop()
            finally:
                self._lock.release()

    def interrupt(self) -> None:
        """Aborts a call that is waiting in another thread, as if the server were away; later calls work."""
        connected = self._socket
        if connected is not None:
            self._interrupted = True
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _keeps_open(self, status: int) -> bool:
        """Returns whether the connection stays open after an answer with this status.

        A program may end after a refusal, and must not leave connections open.
        """
        raise NotImplementedError

    def _exchange(self, transfer: Transfer[T], answer_s: float) -> tuple[int, T]:
        """Sends a request; returns the status and the content that `transfer` read.

        Args:
            transfer: Sends the request and reads the answer. Called again over a new connection if the
                server has closed the idle one.
            answer_s: How long the answer may take.

        Raises:
            EdlError: There is no answer (`unavailable_error`), or `transfer` raised the error.
        """
        with self._lock:
            if self._closed:
                raise self.unavailable_error(
                    f"this program has closed the connection to {self.peer}"
                )
            try:
                status, payload = self._retry_if_idle_closed(transfer, answer_s)
            except EdlError:
                self._drop()
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._drop()
                text = f"{self.peer} at {self.address} does not answer: {one_line(error)}"
                raise self.unavailable_error(text) from error
            if not self._keeps_open(status):
                self._drop()
        return status, payload

    def _retry_if_idle_closed(self, transfer: Transfer[T], answer_s: float) -> tuple[int, T]:
        fresh = self._http is None
        self._interrupted = False
        try:
            return self._transfer_once(transfer, answer_s)
        except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest):
            self._drop()
            if fresh or self._closed or self._interrupted:
                raise
        return self._transfer_once(transfer, answer_s)

    def _transfer_once(self, transfer: Transfer[T], answer_s: float) -> tuple[int, T]:
        connection = self._http or self._open()
        if self._socket is not None:
            self._socket.settimeout(answer_s)
        answer, payload = transfer(connection)
        if answer.will_close:
            self._drop()
        return answer.status, payload

    def _open(self) -> http.client.HTTPConnection:
        if self._secure:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_S, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)
        connection.connect()
        _detect_lost_host(connection.sock, while_sending=not self.sends_large_bodies)
        self._http, self._socket = connection, connection.sock
        return connection

    def _drop(self) -> None:
        connection, self._http, self._socket = self._http, None, None
        if connection is not None:
            connection.close()


def _detect_lost_host(opened: socket.socket, *, while_sending: bool) -> None:
    """Makes the system end the connection if its host is silent for `_SILENT_HOST_S`.

    A host that lost power neither answers nor resets connections. Each waiting call would then take its
    whole `answer_s`, and so would the next call on an idle connection. A live host's kernel answers
    keep-alive probes, no matter how busy the server is (tcp(7), RFC 5482).

    Args:
        opened: The connection.
        while_sending: Whether the limit also applies while a request is being sent, by TCP_USER_TIMEOUT.
            This option treats bytes that the server has not read yet as lost, so it would abort a large
            body sent to a live server that reads it later.
    """
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": 2,
        "TCP_KEEPINTVL": 1,
        "TCP_KEEPCNT": _SILENT_HOST_S - 2,
    }
    if while_sending:
        options["TCP_USER_TIMEOUT"] = 1000 * _SILENT_HOST_S
    for name, setting in options.items():
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), setting)


class Connection(KeepAliveConnection):
    """A connection to the master.

    Raises `Unavailable` if a repeated call may succeed, otherwise `Refused`, and no other errors.
    """

    peer, unavailable_error = "the master", Unavailable

    def __init__(self, master: str, token: str) -> None:
        super().__init__(master)
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            VERSION_HEADER: str(VERSION),
        }

    def call(
        self, method: str, path: str, body: protocol.Json | None = None, answer_s: float = ANSWER_S
    ) -> protocol.Json:
        """Sends one request and returns the answer's body.

        Args:
            method: The HTTP method.
            path: The path, starting with `/v1`.
            body: Sent as JSON.
            answer_s: How long the answer may take.

        Raises:
            Unavailable: There is no answer, or the same call may succeed later.
            Refused: The same call would be refused again.
        """
        payload = None if body is None else json.dumps(body, separators=(",", ":")).encode()

        def transfer(
            connection: http.client.HTTPConnection,
        ) -> tuple[http.client.HTTPResponse, bytes]:
            connection.request(method, self._prefix + path, body=payload, headers=self._headers)
            answer = connection.getresponse()
            raw = answer.read(_MAX_BYTES + 1)
            if len(raw) > _MAX_BYTES:
                raise Unavailable(f"the master's answer is longer than {_MAX_BYTES} bytes")
            return answer, raw

        status, raw = self._exchange(transfer, answer_s)
        return _read(status, raw)

    @override
    def _keeps_open(self, status: int) -> bool:
        return status not in _REFUSALS


def _read(status: int, raw: bytes) -> protocol.Json:
    try:
        body: Any = json_text.loads(raw) if raw else {}
    except ValueError:
        body = None
    if status in _OK and isinstance(body, dict):
        return body
    fields = body if isinstance(body, dict) else {}
    refusal = protocol.parse_refusal(status, fields)
    if status in _REFUSALS and status not in _RETRIED and "error" in fields:
        raise refusal
    raise Unavailable(f"the master answered {status}: {refusal}")
