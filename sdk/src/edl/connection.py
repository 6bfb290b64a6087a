"""One keep-alive HTTP connection to the master: JSON in, JSON out, every wait bounded.

Answers that may differ next time raise `Unavailable`, others `Refused`; nothing else leaves.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from typing import Any
from urllib.parse import urlsplit

from edl import wire
from edl.errors import MasterError, Unavailable, one_line

CONNECT_S = 3.0
ANSWER_S = 15.0
_MOST_BYTES = 64 << 20
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_REFUSALS = range(400, 500)
_OK = range(200, 300)


class Connection:
    """Used by one thread at a time (a lock sees to it); `close` may come from any."""

    def __init__(self, master: str, token: str) -> None:
        parts = urlsplit(master)
        self.address = parts.netloc
        self._host, self._port = parts.hostname or "", parts.port
        self._prefix = parts.path.rstrip("/")
        self._secure = parts.scheme == "https"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._lock = threading.Lock()
        self._http: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._closed = False
        self._interrupted = False

    def call(
        self, method: str, path: str, body: wire.Json | None = None, answer_s: float = ANSWER_S
    ) -> wire.Json:
        """Sends one request and returns the answer's body.

        Args:
            method: HTTP's.
            path: From `/v1` on.
            body: Sent as JSON.
            answer_s: How long the answer may take.

        Raises:
            Unavailable: No answer, or one that may differ next time.
            Refused: An answer that would be the same next time.
        """
        payload = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        with self._lock:
            if self._closed:
                raise Unavailable("the connection to the master was closed by this program")
            try:
                status, raw = self._exchange(method, self._prefix + path, payload, answer_s)
            except MasterError:
                self._drop()
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._drop()
                text = f"the master at {self.address} does not answer: {one_line(error)}"
                raise Unavailable(text) from error
            if status in _REFUSALS:
                self._drop()  # the program may end now; nothing is to stay open then
        return _read(status, raw)

    def close(self) -> None:
        """Ends the connection for good; a call that waits elsewhere ends at once."""
        self._closed = True
        self.interrupt()
        if self._lock.acquire(timeout=1):
            try:
                self._drop()
            finally:
                self._lock.release()

    def interrupt(self) -> None:
        """A call that waits elsewhere ends at once, with `Unavailable`; later ones work."""
        waiting = self._socket
        if waiting is not None:
            self._interrupted = True
            with contextlib.suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)

    def _exchange(
        self, method: str, path: str, payload: bytes | None, answer_s: float
    ) -> tuple[int, bytes]:
        """A connection that the master closed while it was idle is opened once more."""
        fresh = self._http is None
        self._interrupted = False
        try:
            return self._once(method, path, payload, answer_s)
        except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest):
            self._drop()
            if fresh or self._closed or self._interrupted:
                raise
        return self._once(method, path, payload, answer_s)

    def _once(
        self, method: str, path: str, payload: bytes | None, answer_s: float
    ) -> tuple[int, bytes]:
        link = self._http or self._open()
        if self._socket is not None:
            self._socket.settimeout(answer_s)
        link.request(method, path, body=payload, headers=self._headers)
        answer = link.getresponse()
        raw = answer.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise Unavailable(f"the master's answer is longer than {_MOST_BYTES} bytes")
        if answer.will_close:
            self._drop()
        return answer.status, raw

    def _open(self) -> http.client.HTTPConnection:
        if self._secure:
            link: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_S, context=ssl.create_default_context()
            )
        else:
            link = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)
        link.connect()
        self._http, self._socket = link, link.sock
        return link

    def _drop(self) -> None:
        link, self._http, self._socket = self._http, None, None
        if link is not None:
            link.close()


def _read(status: int, raw: bytes) -> wire.Json:
    try:
        body: Any = json.loads(raw) if raw else {}
    except ValueError:
        body = None
    if status in _OK and isinstance(body, dict):
        return body
    found = body if isinstance(body, dict) else {}
    refusal = wire.refused(status, found)
    if status in _REFUSALS and status not in _RETRIED and "error" in found:
        raise refusal
    raise Unavailable(f"the master answered {status}: {refusal}")
