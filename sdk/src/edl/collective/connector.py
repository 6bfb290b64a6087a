"""The active side of a ring's connections: connects to the next member, with retries."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket

from edl import clock
from edl.backoff import Backoff
from edl.collective import handshake, transport
from edl.collective.handshake import (
    HandshakeDriver,
    HandshakeError,
    Outcome,
    RoundPosition,
    Verdict,
)
from edl.collective.transport import READ, WRITE, Waiter
from edl.errors import RoundOver, one_line

log = logging.getLogger("edl")

_REFUSED_S = 0.2
"""How long refused connections are retried. A member listens before it joins a round, so a port that
refuses connections belongs to a process that has ended."""
_FAILING_S = 3.0
"""How long other failures are retried, since a new pod's network needs a moment. A busy member
causes delays, but no failures."""
_FIRST_S, _MAX_S = 0.02, 0.5
_UNANSWERED_S, _MAX_UNANSWERED_S = 0.1, 3.0
"""How long an attempt waits for the peer's system before the next attempt. A system whose accept queue is
full of foreign connections does not answer; the peer empties the queue within milliseconds, but our system
would try again only after a second."""
_SILENT_S = 120.0
"""How long to keep trying a peer whose system does not answer. Our system gives up a single attempt
after the same time."""
_CONNECTING = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK})
_NEVER = float("inf")


class Connector:
    """Connects to one peer, with retries until it has a link or gives up."""

    def __init__(
        self, name: str, address: str, position: RoundPosition, key: bytes, waiter: Waiter
    ) -> None:
        self._name = name
        self._address = address
        self._position = position
        self._key = key
        self._waiter = waiter
        self._backoff = Backoff(_FIRST_S, _MAX_S)
        self._unanswered = Backoff(_UNANSWERED_S, _MAX_UNANSWERED_S)
        self._connection: socket.socket | None = None
        """The connection of the current attempt."""
        self._driver: HandshakeDriver[Outcome] | None = None
        self._failing_since: float | None = None
        self._silent_since: float | None = None
        self._next_at = 0.0
        self.link: socket.socket | None = None
        """The connection, once the handshake is complete."""

    def due_at(self) -> float:
        """Returns when `tick` must be called next (monotonic seconds)."""
        return self._next_at if self._driver is None and self.link is None else _NEVER

    def tick(self, now: float) -> None:
        """Starts the next attempt when it is due, even if the current attempt is still unanswered.

        Raises:
            RoundOver: There will be no link in this round.
        """
        if now < self.due_at() or _is_answered(self._connection):
            return
        self.close()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since >= _SILENT_S:
            raise RoundOver(f"{self._name} cannot be reached: its system does not answer")
        self._next_at = now + self._unanswered.next_s()
        try:
            self._connect()
        except OSError as error:
            self._retry_or_give_up(error)

    def handle(self, descriptor: int) -> None:
        """Continues the current attempt, if the event belongs to it.

        Raises:
            RoundOver: There will be no link in this round.
        """
        connection = self._connection
        if connection is None or connection.fileno() != descriptor:
            return
        try:
            outcome = self._advance(connection)
        except OSError as error:
            self._retry_or_give_up(error)
        except HandshakeError as error:
            log.warning("the ring refuses %s: %s", self._name, error)
            raise RoundOver(f"{self._name} was refused: {error}") from error
        else:
            if outcome is not None:
                self._complete(outcome)

    def close(self) -> None:
        """Closes the connection of the current attempt, or the link."""
        connection, self._connection = self._connection or self.link, None
        self.link = None
        if connection is not None:
            self._waiter.watch(connection.fileno(), 0)
            transport.disconnect(connection)

    def _connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        try:
            addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except ValueError as error:  # the port is not a number, or the host name is invalid
            raise OSError(f"{self._address!r} is not host:port") from error
        family, kind, protocol, _, target = addresses[self._backoff.tries % len(addresses)]
        self._connection = transport.configure(socket.socket(family, kind, protocol))
        code = self._connection.connect_ex(target)
        if code not in _CONNECTING:
            raise OSError(code, os.strerror(code))
        self._waiter.watch(self._connection.fileno(), WRITE)

    def _advance(self, connection: socket.socket) -> Outcome | None:
        if self._driver is not None:
            return self._driver.on_readable()
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._silent_since = None
        nonce = secrets.token_bytes(handshake.NONCE_BYTES)
        script = handshake.initiate(self._position, self._key, nonce)
        self._driver = HandshakeDriver(connection, script)
        self._waiter.watch(connection.fileno(), READ)
        return self._driver.start()

    def _complete(self, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.LATER:
            raise RoundOver(f"{self._name} is already in round {outcome.number}")
        self.link, self._connection = self._connection, None

    def _retry_or_give_up(self, error: OSError) -> None:
        self.close()
        self._driver = None
        now = clock.monotonic_s()
        if self._failing_since is None:
            self._failing_since = now
        patience_s = _REFUSED_S if isinstance(error, ConnectionRefusedError) else _FAILING_S
        if now - self._failing_since >= patience_s:
            raise RoundOver(f"{self._name} cannot be reached: {one_line(error)}") from error
        self._next_at = now + self._backoff.next_s()


def _is_answered(connection: socket.socket | None) -> bool:
    """Returns whether the peer's system has accepted the attempt, even if its event was not handled yet."""
    if connection is None:
        return False
    try:
        connection.getpeername()
    except OSError:
        return False
    return True
