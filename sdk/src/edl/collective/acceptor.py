"""The passive side of a ring's connections: the listening port of a process, and the acceptor of a ring.

No thread serves the port. Connections wait in the kernel's queue until `Ring.connect` accepts them. The
listener then stores a few connections that are meant for a later ring.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections import deque
from typing import NamedTuple

from edl import clock
from edl.bounded_warnings import BoundedWarnings
from edl.collective import handshake, transport
from edl.collective.handshake import ClientHello, HandshakeDriver, HandshakeError, RoundPosition
from edl.collective.transport import READ, Waiter

log = logging.getLogger("edl")

_MAX_EARLY = 16
_HANDSHAKE_TIMEOUT_S = 5.0
"""Time limit of a handshake; peers that are slower are disconnected."""
_MAX_PENDING = 64
_NEVER = float("inf")


class Listener:
    """The port on which neighbours connect, for all rounds of a process.

    Only the thread that connects rings may use it.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        """Starts to listen.

        Args:
            host: Address to bind to; empty for all IPv4 and IPv6 addresses.
            port: Port to bind to; 0 for any free port.

        Raises:
            OSError: The address cannot be bound.
        """
        self._socket = transport.track(transport.listen(host, port))
        self._early: deque[tuple[socket.socket, ClientHello]] = deque()
        """Connections for later rings, oldest first."""
        self.refusals = BoundedWarnings(log)
        """Writes warnings about refused connections; its limit covers all rounds."""
        bound_address = self._socket.getsockname()
        self.address: tuple[str, int] = (str(bound_address[0]), int(bound_address[1]))

    def fileno(self) -> int:
        """Returns a descriptor that is readable when a connection is waiting."""
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """Accepts the next connection; returns None if none is waiting."""
        try:
            connection, _ = self._socket.accept()
        except OSError:  # no connection is waiting, or it ended before it was accepted
            return None
        return transport.configure(connection)

    def store_early(self, connection: socket.socket, hello: ClientHello) -> None:
        """Stores a connection for a later ring; if too many are stored, closes the oldest one."""
        self._early.append((connection, hello))
        if len(self._early) > _MAX_EARLY:
            self._early.popleft()[0].close()  # the peer will try again

    def take_early(self) -> list[tuple[socket.socket, ClientHello]]:
        """Removes the stored connections and returns them, oldest first."""
        early = list(self._early)
        self._early.clear()
        return early

    def close(self) -> None:
        """Stops listening; does not affect connected rings."""
        for connection, _ in self.take_early():
            connection.close()
        self._socket.close()


class _Pending(NamedTuple):
    """A connection during its handshake."""

    driver: HandshakeDriver[ClientHello | bool]
    deadline: float


class Acceptor:
    """Accepts the connection from the previous member of the ring.

    Refuses peers that do not belong to the job, and stores connections for later rings in the listener.
    """

    def __init__(
        self, listener: Listener, position: RoundPosition, key: bytes, waiter: Waiter
    ) -> None:
        self._listener = listener
        self._position = position
        self._key = key
        self._waiter = waiter
        self._pending: dict[int, _Pending] = {}
        """Descriptor -> connection during its handshake."""
        self.link: socket.socket | None = None
        """The accepted connection from the previous member."""
        waiter.watch(listener.fileno(), READ)
        for connection, hello in listener.take_early():
            self._answer(connection, hello)

    def due_at(self) -> float:
        """Returns when `tick` must be called next (monotonic seconds)."""
        return min((pending.deadline for pending in self._pending.values()), default=_NEVER)

    def tick(self, now: float) -> None:
        """Disconnects peers whose handshake takes too long."""
        for descriptor, pending in list(self._pending.items()):
            if now >= pending.deadline:
                self._reject(descriptor)

    def handle(self, descriptor: int) -> None:
        """Handles an event of the listener or of a pending connection."""
        if self.link is not None:
            return
        if descriptor == self._listener.fileno():
            self._accept()
        elif descriptor in self._pending:
            self._advance(descriptor, start=False)

    def stop(self) -> None:
        """Stops accepting and disconnects all pending peers, which will try again."""
        self._waiter.watch(self._listener.fileno(), 0)
        for descriptor in list(self._pending):
            self._reject(descriptor)

    def close(self) -> None:
        """Stops accepting and disconnects all peers, including the previous member."""
        self.stop()
        if self.link is not None:
            self._waiter.watch(self.link.fileno(), 0)
            transport.disconnect(self.link)
            self.link = None

    def _accept(self) -> None:
        connection = self._listener.accept()
        if connection is None:
            return
        if len(self._pending) >= _MAX_PENDING:
            self._reject(next(iter(self._pending)))
        self._start(connection, handshake.receive_hello())

    def _start(
        self, connection: socket.socket, script: handshake.Script[ClientHello | bool]
    ) -> None:
        deadline = clock.monotonic_s() + _HANDSHAKE_TIMEOUT_S
        self._pending[connection.fileno()] = _Pending(HandshakeDriver(connection, script), deadline)
        self._waiter.watch(connection.fileno(), READ)
        self._advance(connection.fileno(), start=True)

    def _advance(self, descriptor: int, *, start: bool) -> None:
        driver = self._pending[descriptor].driver
        try:
            outcome = driver.start() if start else driver.on_readable()
        except OSError:
            self._reject(descriptor)  # disconnected: the peer has died or will try again
            return
        except HandshakeError as error:
            peer = _peer_address(driver.connection)
            self._listener.refusals.warn("the ring refuses a connection from %s: %s", peer, error)
            self._reject(descriptor)
            return
        if outcome is not None:
            self._complete(driver.connection, outcome)

    def _complete(self, connection: socket.socket, outcome: ClientHello | bool) -> None:
        if isinstance(outcome, ClientHello):
            self._release(connection)
            self._answer(connection, outcome)
        elif outcome and self.link is None:
            self._release(connection)
            self.link = connection
        else:
            self._reject(connection.fileno())

    def _answer(self, connection: socket.socket, hello: ClientHello) -> None:
        if hello.position.order > self._position.order:
            self._listener.store_early(connection, hello)
            return
        nonce = secrets.token_bytes(handshake.NONCE_BYTES)
        self._start(connection, handshake.respond(hello, self._position, self._key, nonce))

    def _release(self, connection: socket.socket) -> None:
        self._waiter.watch(connection.fileno(), 0)
        del self._pending[connection.fileno()]

    def _reject(self, descriptor: int) -> None:
        connection = self._pending[descriptor].driver.connection
        self._release(connection)
        transport.disconnect(connection)


def _peer_address(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0]).removeprefix("::ffff:")
    except OSError:
        return "an unknown address"
