"""One keep-alive HTTP connection to the master: JSON in, JSON out, every wait bounded.

Answers that may differ next time raise `Unavailable`, others `Refused`; nothing else leaves.
"""

from __future__ import annotations

import http.client
import json
from typing import Any

from edl import wire
from edl.errors import Unavailable
from edl.keepalive import KeepAlive

ANSWER_S = 15.0
_MOST_BYTES = 64 << 20
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_REFUSALS = range(400, 500)
_OK = range(200, 300)


class Connection(KeepAlive):
    """Used by one thread at a time (a lock sees to it); `close` may come from any."""

    whom, away = "the master", Unavailable

    def __init__(self, master: str, token: str) -> None:
        super().__init__(master)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

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

        def act(link: http.client.HTTPConnection) -> tuple[http.client.HTTPResponse, bytes]:
            link.request(method, self._prefix + path, body=payload, headers=self._headers)
            answer = link.getresponse()
            raw = answer.read(_MOST_BYTES + 1)
            if len(raw) > _MOST_BYTES:
                raise Unavailable(f"the master's answer is longer than {_MOST_BYTES} bytes")
            return answer, raw

        return _read(*self._exchange(act, answer_s))

    def _stays(self, status: int) -> bool:
        return status not in _REFUSALS


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
