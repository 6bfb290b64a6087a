"""One keep-alive HTTP connection: opened when it is needed, and once more where it was closed idle.

What goes over it is its users' business: `edl.connection` speaks to the master, `edl.servers.link` to a
parameter server.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from edl.errors import EdlError, one_line

CONNECT_S = 3.0

T = TypeVar("T")
Act = Callable[[http.client.HTTPConnection], "tuple[http.client.HTTPResponse, T]"]
"""Sends a request and reads its answer whole."""


class KeepAlive:
    """Used by one thread at a time (a lock sees to it); `close` and `interrupt` may come from any."""

    whom = "the server"
    """Who answers, for messages."""
    away: type[EdlError] = EdlError
    """What is raised where there is no answer."""

    def __init__(self, url: str) -> None:
        """Connects to nobody yet.

        Args:
            url: `http` or `https`; a path is put before those of all calls.
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
        """Ends the connection for good; a call that waits elsewhere ends at once."""
        self._closed = True
        self.interrupt()
        if self._lock.acquire(timeout=1):
            try:
                self._drop()
            finally:
                self._lock.release()

    def interrupt(self) -> None:
        """A call that waits elsewhere ends at once, as if nobody answered; later ones work."""
        waiting = self._socket
        if waiting is not None:
            self._interrupted = True
            with contextlib.suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)

    def _stays(self, status: int) -> bool:
        """Whether the connection is kept after an answer.

        After a refusal the program may end, and nothing is to stay open then.
        """
        raise NotImplementedError

    def _exchange(self, act: Act[T], answer_s: float) -> tuple[int, T]:
        """The answer's status, and what `act` read of it.

        Args:
            act: Called again, over a new connection, where an idle one turns out to be closed.
            answer_s: How long the answer may take.

        Raises:
            EdlError: Of type `away`, where there is no answer; and whatever `act` raises of these.
        """
        with self._lock:
            if self._closed:
                raise self.away(f"the connection to {self.whom} was closed by this program")
            try:
                status, found = self._tried(act, answer_s)
            except EdlError:
                self._drop()
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._drop()
                text = f"{self.whom} at {self.address} does not answer: {one_line(error)}"
                raise self.away(text) from error
            if not self._stays(status):
                self._drop()
        return status, found

    def _tried(self, act: Act[T], answer_s: float) -> tuple[int, T]:
        fresh = self._http is None
        self._interrupted = False
        try:
            return self._once(act, answer_s)
        except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest):
            self._drop()
            if fresh or self._closed or self._interrupted:
                raise
        return self._once(act, answer_s)

    def _once(self, act: Act[T], answer_s: float) -> tuple[int, T]:
        link = self._http or self._open()
        if self._socket is not None:
            self._socket.settimeout(answer_s)
        answer, found = act(link)
        if answer.will_close:
            self._drop()
        return answer.status, found

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
