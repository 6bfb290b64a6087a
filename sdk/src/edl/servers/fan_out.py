"""Sends a call to all servers, with one thread per server, and retries until each has answered."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from edl import clock
from edl.backoff import Backoff
from edl.master.protocol import Json
from edl.servers.connection import PserverConnection
from edl.servers.errors import ServersError, ServersUnavailable
from edl_protocol.pserver import TicketRequest

log = logging.getLogger("edl")
T = TypeVar("T")

_LOG_AFTER_TRIES = 4
Call = Callable[[PserverConnection, int], T]
"""(connection, index of the server) -> answer."""


class FanOut:
    """Connections to all servers of a job, for one thread at a time; any thread may call `close`."""

    def __init__(
        self, urls: Sequence[str], token: str, patience_s: float, stopping: Callable[[], bool]
    ) -> None:
        """Opens no connection yet.

        Args:
            urls: URLs of the servers, ordered by index.
            token: The job's token.
            patience_s: How long a call waits for an unreachable server.
            stopping: Returns whether this process is stopping; calls then stop waiting.
        """
        self.connections = [PserverConnection(url, token) for url in urls]
        self._patience_s, self._stopping = patience_s, stopping
        self._threads = ThreadPoolExecutor(len(urls), "edl-servers")
        self._closed = threading.Event()

    def __len__(self) -> int:
        return len(self.connections)

    def call_coordinator_last(self, call: Call[T]) -> None:
        """Calls all servers, and server 0 only after the others have answered.

        Raises:
            ServersError: See `call_all`.
        """
        others = range(1, len(self))
        if others:
            self.call_all(call, others)
        self.call_all(call, [0])

    def request_ticket(self, body: Json) -> Json:
        """Asks server 0, the coordinator, for a ticket and returns its answer.

        Raises:
            ServersError: See `call_all`.
        """
        return self.call_all(lambda server, _: server.json("POST", TicketRequest.PATH, body), [0])[
            0
        ]

    def return_ticket(self, body: Json) -> None:
        """Returns a ticket in a single try; if it fails, the ticket expires."""
        with contextlib.suppress(ServersError):
            self.connections[0].json("POST", TicketRequest.PATH, {**body, "back": True})

    def call_all(self, call: Call[T], servers: Sequence[int] | None = None) -> list[T]:
        """Calls the given servers, by default all, and returns their answers in order.

        Raises:
            ServersError: A server refused the call, or was unreachable for too long. Other servers may
                have performed the call, so it must be idempotent.
        """
        indexes = range(len(self.connections)) if servers is None else servers
        given_up = threading.Event()
        if len(indexes) == 1:
            return [self._call(call, indexes[0], given_up)]
        running = [self._threads.submit(self._call, call, server, given_up) for server in indexes]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            given_up.set()  # ends calls that still wait for an unreachable server
        wait(running)
        for future in running:
            error = future.exception()
            if error is not None and not isinstance(error, _GivenUp):
                raise error
        return [future.result() for future in running]

    def close(self) -> None:
        """Closes all connections; waiting calls end immediately."""
        self._closed.set()
        for connection in self.connections:
            connection.close()
        self._threads.shutdown(wait=False)

    def _call(self, call: Call[T], server: int, given_up: threading.Event) -> T:
        connection, backoff = self.connections[server], Backoff()
        until_s = clock.monotonic_s() + self._patience_s
        while True:
            try:
                answer = call(connection, server)
            except ServersUnavailable as error:  # noqa: PERF203 - the call takes much longer than `try`
                self._pause(error, server, backoff, until_s, given_up)
            else:
                if backoff.tries >= _LOG_AFTER_TRIES:
                    log.info("parameter server %d answers again", server)
                return answer

    def _pause(
        self,
        error: ServersUnavailable,
        server: int,
        backoff: Backoff,
        until_s: float,
        given_up: threading.Event,
    ) -> None:
        now_s = clock.monotonic_s()
        if self._closed.is_set() or self._stopping():
            raise error
        if now_s > until_s:
            text = f"parameter server {server} was unreachable for more than {self._patience_s:g} s: {error}"
            raise ServersUnavailable(f"{text} (EDL_PATIENCE_S)") from error
        pause_s = backoff.next_s()
        if backoff.tries == _LOG_AFTER_TRIES:
            log.warning("%s; retrying for %g s", error, self._patience_s)
        if given_up.wait(pause_s):
            raise _GivenUp(str(error)) from error


class _GivenUp(ServersUnavailable):
    """Raised in calls that end early because a call to another server has failed."""
