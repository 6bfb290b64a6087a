"""One keep-alive HTTP connection to one parameter server; every wait is bounded.

Answers that may differ next time raise `Away`, others `Declined`; nothing else leaves.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from edl.errors import one_line
from edl.servers.errors import Away, Declined, Moved, ServersError
from edl.servers.frames import Frame, FrameError, decode

CONNECT_S = 3.0
ANSWER_S = 30.0
FRAME = "application/vnd.edl.frame"
_MOST_BYTES = 1 << 31
_TOGETHER_BYTES = 1 << 15
"""A body up to that goes out with its head, in one piece."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_OK, _CONFLICT, _LEAST_REFUSAL = 200, 409, 400


class Link:
    """Used by one thread at a time (a lock sees to it); `close` and `interrupt` by any."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self.address = parts.netloc
        self._host, self._port = parts.hostname or "", parts.port
        self._prefix = parts.path.rstrip("/")
        self._secure = parts.scheme == "https"
        self._token = token
        self._lock = threading.Lock()
        self._http: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._closed = False

    def json(
        self, method: str, path: str, body: dict[str, Any] | None = None, answer_s: float = ANSWER_S
    ) -> dict[str, Any]:
        """A call whose body is JSON, as its answer is."""
        raw = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        return self._json(self._call(method, path, [memoryview(raw)], "application/json", answer_s))

    def tell(self, path: str, parts: Sequence[memoryview], answer_s: float) -> dict[str, Any]:
        """A call whose body is a frame; its answer is JSON."""
        return self._json(self._call("POST", path, parts, FRAME, answer_s))

    def fetch(self, path: str, body: dict[str, Any]) -> Frame:
        """A call whose body is JSON; its answer is a frame."""
        raw = memoryview(json.dumps(body, separators=(",", ":")).encode())
        return self._frame(self._call("POST", path, [raw], "application/json", ANSWER_S))

    def exchange(self, path: str, parts: Sequence[memoryview]) -> Frame:
        """A call whose body is a frame, as its answer is."""
        return self._frame(self._call("POST", path, parts, FRAME, ANSWER_S))

    def interrupt(self) -> None:
        """A call that waits elsewhere ends at once, with `Away`."""
        waiting = self._socket
        if waiting is not None:
            with contextlib.suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the connection for good; a call that waits elsewhere ends at once."""
        self._closed = True
        self.interrupt()
        if self._lock.acquire(timeout=1):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _call(
        self, method: str, path: str, parts: Sequence[memoryview], kind: str, answer_s: float
    ) -> bytearray:
        with self._lock:
            if self._closed:
                raise Away("the connection to the parameter server was closed by this program")
            try:
                status, raw = self._exchange(method, self._prefix + path, parts, kind, answer_s)
            except ServersError:
                self._drop()
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._drop()
                text = f"the parameter server at {self.address} does not answer: {one_line(error)}"
                raise Away(text) from error
            if status != _OK:
                self._drop()  # the program may end now; nothing is to stay open then
        if status != _OK:
            raise self._refusal(status, raw)
        return raw

    def _exchange(
        self, method: str, path: str, parts: Sequence[memoryview], kind: str, answer_s: float
    ) -> tuple[int, bytearray]:
        """A connection that was closed while it was idle is opened once more."""
        fresh = self._http is None
        try:
            return self._once(method, path, parts, kind, answer_s)
        except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest):
            self._drop()
            if fresh or self._closed:
                raise
        return self._once(method, path, parts, kind, answer_s)

    def _once(
        self, method: str, path: str, parts: Sequence[memoryview], kind: str, answer_s: float
    ) -> tuple[int, bytearray]:
        link = self._http or self._open()
        if self._socket is not None:
            self._socket.settimeout(answer_s)
        link.putrequest(method, path, skip_accept_encoding=True)
        link.putheader("Authorization", f"Bearer {self._token}")
        link.putheader("Content-Type", kind)
        size = sum(part.nbytes for part in parts)
        link.putheader("Content-Length", str(size))
        if size <= _TOGETHER_BYTES:
            link.endheaders(b"".join(parts))
        else:
            link.endheaders()
            for part in parts:
                link.send(part)
        with link.getresponse() as answer:
            raw = self._read(answer)
        if answer.will_close:
            self._drop()
        return answer.status, raw

    def _read(self, answer: http.client.HTTPResponse) -> bytearray:
        if answer.length is None:
            raise Away(
                f"the parameter server at {self.address} does not say how long its answer is"
            )
        if answer.length > _MOST_BYTES:
            raise Away(f"the answer of {self.address} is longer than {_MOST_BYTES} bytes")
        raw = bytearray(answer.length)
        view, at = memoryview(raw), 0
        while at < len(raw):
            count = answer.readinto(view[at:])
            if not count:
                raise http.client.IncompleteRead(bytes(raw[:at]), len(raw) - at)
            at += count
        return raw

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

    def _json(self, raw: bytearray) -> dict[str, Any]:
        try:
            found = json.loads(raw)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Away(f"the answer of {self.address} is no JSON object")
        return found

    def _frame(self, raw: bytearray) -> Frame:
        try:
            return decode(raw)
        except FrameError as error:
            raise Away(f"the answer of {self.address} was damaged: {error}") from error

    def _refusal(self, status: int, raw: bytearray) -> ServersError:
        try:
            error = json.loads(raw)["error"]
            message, field = str(error["message"]), error.get("field")
        except (ValueError, KeyError, TypeError):
            return Away(f"the parameter server at {self.address} answered {status}")
        if status in _AGAIN or status < _LEAST_REFUSAL:
            return Away(f"the parameter server at {self.address} answered {status}: {message}")
        if status == _CONFLICT and field == "generation":
            return Moved(status, message, field)
        return Declined(status, message, field)
