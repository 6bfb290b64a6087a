"""The way to the next member of the ring: connect, prove, try again where that may help."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket

from edl import clock
from edl.backoff import Backoff
from edl.errors import RoundOver, one_line
from edl.exchange import handshake, sockets
from edl.exchange.handshake import HandshakeError, Outcome, Place, Verdict
from edl.exchange.talk import Talk
from edl.exchange.waiter import READ, WRITE, Waiter

log = logging.getLogger("edl")

_REFUSED_S = 0.2
"""A member listens before it is a member: a port that refuses belongs to a process that is gone."""
_FAILING_S = 3.0
"""Networks of new pods need a moment; a member that is busy does not fail, it keeps us waiting."""
_FIRST_S, _MOST_S = 0.02, 0.5
_CONNECTING = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK})
_ENDLESS = float("inf")


class Reach:
    """One try after another, until the link is there or the peer is found to be gone."""

    def __init__(self, name: str, address: str, place: Place, key: bytes, waiter: Waiter) -> None:
        self._name = name
        self._address = address
        self._place = place
        self._key = key
        self._waiter = waiter
        self._backoff = Backoff(_FIRST_S, _MOST_S)
        self._made: socket.socket | None = None
        self._talk: Talk[Outcome] | None = None
        self._failing_since: float | None = None
        self._next_at = 0.0
        self.link: socket.socket | None = None

    def due_at(self) -> float:
        """When `tick` has something to do (monotonic seconds)."""
        return self._next_at if self._made is None and self.link is None else _ENDLESS

    def tick(self, now: float) -> None:
        """Makes the next try when its time has come.

        Raises:
            RoundOver: There will be no link in this round.
        """
        if now >= self.due_at():
            try:
                self._begin()
            except OSError as error:
                self._failed(error)

    def handle(self, descriptor: int) -> None:
        """Goes on with the try under way, if the event is its own.

        Raises:
            RoundOver: There will be no link in this round.
        """
        made = self._made
        if made is None or made.fileno() != descriptor:
            return
        try:
            outcome = self._step(made)
        except OSError as error:
            self._failed(error)
        except HandshakeError as error:
            log.warning("the exchange refuses %s: %s", self._name, error)
            raise RoundOver(f"{self._name} was refused: {error}") from error
        else:
            if outcome is not None:
                self._decided(outcome)

    def drop(self) -> None:
        """Gives up what is under way, and the link."""
        made, self._made = self._made or self.link, None
        self.link = None
        if made is not None:
            self._waiter.watch(made.fileno(), 0)
            sockets.end(made)

    def _begin(self) -> None:
        host, _, port = self._address.rpartition(":")
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except ValueError as error:  # no number, or a name that no resolver takes
            raise OSError(f"{self._address!r} is not host:port") from error
        family, kind, protocol, _, target = found[self._backoff.tries % len(found)]
        self._made = sockets.prompt(socket.socket(family, kind, protocol))
        code = self._made.connect_ex(target)
        if code not in _CONNECTING:
            raise OSError(code, os.strerror(code))
        self._waiter.watch(self._made.fileno(), WRITE)

    def _step(self, made: socket.socket) -> Outcome | None:
        if self._talk is not None:
            return self._talk.hear()
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        nonce = secrets.token_bytes(handshake.NONCE_BYTES)
        self._talk = Talk(made, handshake.make(self._place, self._key, nonce))
        self._waiter.watch(made.fileno(), READ)
        return self._talk.begin()

    def _decided(self, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.LATER:
            raise RoundOver(f"{self._name} is at round {outcome.number} already")
        self.link, self._made = self._made, None

    def _failed(self, error: OSError) -> None:
        self.drop()
        self._talk = None
        now = clock.monotonic_s()
        if self._failing_since is None:
            self._failing_since = now
        patience_s = _REFUSED_S if isinstance(error, ConnectionRefusedError) else _FAILING_S
        if now - self._failing_since >= patience_s:
            raise RoundOver(f"{self._name} cannot be reached: {one_line(error)}") from error
        self._next_at = now + self._backoff.next_s()
