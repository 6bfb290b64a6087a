"""One keep-alive HTTP connection to one parameter server; every wait is bounded.

Answers that may differ next time raise `Away`, others `Declined`; nothing else leaves.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any

from edl.keepalive import KeepAlive
from edl.servers.errors import Away, Declined, Moved, ServersError
from edl.servers.frames import Frame, FrameError, decode

ANSWER_S = 30.0
FRAME = "application/vnd.edl.frame"
_MOST_BYTES = 1 << 31
_TOGETHER_BYTES = 1 << 15
"""A body up to that goes out with its head, in one piece."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_OK, _CONFLICT, _LEAST_REFUSAL = 200, 409, 400


class Link(KeepAlive):
    """Used by one thread at a time (a lock sees to it); `close` may come from any."""

    whom, away = "the parameter server", Away

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url)
        self._token = token

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

    def _call(
        self, method: str, path: str, parts: Sequence[memoryview], kind: str, answer_s: float
    ) -> bytearray:
        def act(link: http.client.HTTPConnection) -> tuple[http.client.HTTPResponse, bytearray]:
            self._send(link, method, path, parts, kind)
            with link.getresponse() as answer:
                return answer, self._read(answer)

        status, raw = self._exchange(act, answer_s)
        if status != _OK:
            raise self._refusal(status, raw)
        return raw

    def _stays(self, status: int) -> bool:
        return status == _OK

    def _send(
        self,
        link: http.client.HTTPConnection,
        method: str,
        path: str,
        parts: Sequence[memoryview],
        kind: str,
    ) -> None:
        link.putrequest(method, self._prefix + path, skip_accept_encoding=True)
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
