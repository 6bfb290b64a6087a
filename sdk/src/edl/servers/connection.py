"""A keep-alive HTTP connection to one parameter server, with bounded waits.

Errors that a retry may fix raise `ServersUnavailable`, others `RequestRefused`.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any

from edl import json_text
from edl.master.connection import KeepAliveConnection
from edl.overriding import override
from edl.servers.errors import GenerationChanged, RequestRefused, ServersError, ServersUnavailable
from edl.servers.frames import decode
from edl_protocol.frames import CONTENT_TYPE, Frame, FrameError

ANSWER_S = 30.0
_MAX_BYTES = 1 << 31
_TOGETHER_BYTES = 1 << 15
"""Bodies up to this size are sent together with the header."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_OK, _CONFLICT, _MIN_REFUSAL = 200, 409, 400


class PserverConnection(KeepAliveConnection):
    """A connection to one server, for one thread at a time; any thread may call `close`."""

    peer, unavailable_error = "the parameter server", ServersUnavailable
    sends_large_bodies = True  # a server that has too many bytes in flight reads the body later

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url)
        self._token = token

    def json(
        self, method: str, path: str, body: dict[str, Any] | None = None, answer_s: float = ANSWER_S
    ) -> dict[str, Any]:
        """Sends JSON and returns JSON."""
        raw = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        return self._json(self._call(method, path, [memoryview(raw)], "application/json", answer_s))

    def send_frame(self, path: str, parts: Sequence[memoryview], answer_s: float) -> dict[str, Any]:
        """Sends a frame and returns JSON."""
        return self._json(self._call("POST", path, parts, CONTENT_TYPE, answer_s))

    def fetch_frame(self, path: str, body: dict[str, Any]) -> Frame:
        """Sends JSON and returns a frame."""
        raw = memoryview(json.dumps(body, separators=(",", ":")).encode())
        return self._frame(self._call("POST", path, [raw], "application/json", ANSWER_S))

    def exchange_frames(self, path: str, parts: Sequence[memoryview]) -> Frame:
        """Sends a frame and returns a frame."""
        return self._frame(self._call("POST", path, parts, CONTENT_TYPE, ANSWER_S))

    def _call(
        self, method: str, path: str, parts: Sequence[memoryview], kind: str, answer_s: float
    ) -> bytearray:
        def call(link: http.client.HTTPConnection) -> tuple[http.client.HTTPResponse, bytearray]:
            self._send(link, method, path, parts, kind)
            with link.getresponse() as answer:
                return answer, self._read(answer)

        status, raw = self._exchange(call, answer_s)
        if status != _OK:
            raise self._refusal(status, raw)
        return raw

    @override
    def _keeps_open(self, status: int) -> bool:
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
            raise ServersUnavailable(
                f"the answer of the parameter server at {self.address} has no Content-Length"
            )
        if answer.length > _MAX_BYTES:
            raise ServersUnavailable(
                f"the answer of {self.address} is longer than {_MAX_BYTES} bytes"
            )
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
            answer = json_text.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ServersUnavailable(f"the answer of {self.address} is not a JSON object")
        return answer

    def _frame(self, raw: bytearray) -> Frame:
        try:
            return decode(raw)
        except FrameError as error:
            raise ServersUnavailable(f"the answer of {self.address} is damaged: {error}") from error

    def _refusal(self, status: int, raw: bytearray) -> ServersError:
        try:
            error = json_text.loads(raw)["error"]
            message, field = str(error["message"]), error.get("field")
        except (ValueError, KeyError, TypeError):
            return ServersUnavailable(f"the parameter server at {self.address} answered {status}")
        if status in _AGAIN or status < _MIN_REFUSAL:
            return ServersUnavailable(
                f"the parameter server at {self.address} answered {status}: {message}"
            )
        if status == _CONFLICT and field == "generation":
            return GenerationChanged(status, message, field)
        return RequestRefused(status, message, field)
