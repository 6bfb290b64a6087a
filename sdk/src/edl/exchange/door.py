"""Where the member before this one arrives: strangers go, the early wait, the right one is let in."""

from __future__ import annotations

import logging
import secrets
import socket
from typing import NamedTuple

from edl import clock
from edl.exchange import handshake, sockets
from edl.exchange.handshake import HandshakeError, Hello, Place
from edl.exchange.listener import Listener
from edl.exchange.talk import Talk
from edl.exchange.waiter import READ, Waiter

log = logging.getLogger("edl")

_TALK_S = 5.0
"""A stranger that says nothing is sent away; nothing interrupts it otherwise."""
_MOST_VISITS = 64
_ENDLESS = float("inf")


class _Visit(NamedTuple):
    """Somebody at the door."""

    talk: Talk[Hello | bool]
    ends_at: float


class Door:
    """Talks with all who come, until one of them is the right one."""

    def __init__(self, listener: Listener, here: Place, key: bytes, waiter: Waiter) -> None:
        self._listener = listener
        self._here = here
        self._key = key
        self._waiter = waiter
        self._visits: dict[int, _Visit] = {}
        self.link: socket.socket | None = None
        waiter.watch(listener.fileno(), READ)
        for made, greeting in listener.kept():
            self._greeted(made, greeting)

    def due_at(self) -> float:
        """When `tick` has something to do (monotonic seconds)."""
        return min((visit.ends_at for visit in self._visits.values()), default=_ENDLESS)

    def tick(self, now: float) -> None:
        """Sends those away who take too long."""
        for descriptor, visit in list(self._visits.items()):
            if now >= visit.ends_at:
                self._away(descriptor)

    def handle(self, descriptor: int) -> None:
        """Goes on with whoever has said something."""
        if self.link is not None:
            return
        if descriptor == self._listener.fileno():
            self._arrived()
        elif descriptor in self._visits:
            self._play(descriptor, begin=False)

    def shut(self) -> None:
        """Sends all others away; their makers try again."""
        self._waiter.watch(self._listener.fileno(), 0)
        for descriptor in list(self._visits):
            self._away(descriptor)

    def drop(self) -> None:
        """Sends all away, the right one too."""
        self.shut()
        if self.link is not None:
            self._waiter.watch(self.link.fileno(), 0)
            sockets.end(self.link)
            self.link = None

    def _arrived(self) -> None:
        made = self._listener.accept()
        if made is None:
            return
        if len(self._visits) >= _MOST_VISITS:
            self._away(next(iter(self._visits)))
        self._talk(made, handshake.greet())

    def _talk(self, made: socket.socket, script: handshake.Script[Hello | bool]) -> None:
        ends_at = clock.monotonic_s() + _TALK_S
        self._visits[made.fileno()] = _Visit(Talk(made, script), ends_at)
        self._waiter.watch(made.fileno(), READ)
        self._play(made.fileno(), begin=True)

    def _play(self, descriptor: int, *, begin: bool) -> None:
        talk = self._visits[descriptor].talk
        try:
            outcome = talk.begin() if begin else talk.hear()
        except OSError:
            self._away(descriptor)  # gone again: it tries once more, or it is dead
            return
        except HandshakeError as error:
            log.warning("the exchange refuses a connection from %s: %s", _peer(talk.made), error)
            self._away(descriptor)
            return
        if outcome is not None:
            self._decided(talk.made, outcome)

    def _decided(self, made: socket.socket, outcome: Hello | bool) -> None:
        if isinstance(outcome, Hello):
            self._release(made)
            self._greeted(made, outcome)
        elif outcome and self.link is None:
            self._release(made)
            self.link = made
        else:
            self._away(made.fileno())

    def _greeted(self, made: socket.socket, greeting: Hello) -> None:
        if greeting.place.number > self._here.number:
            self._listener.keep(made, greeting)
            return
        nonce = secrets.token_bytes(handshake.NONCE_BYTES)
        self._talk(made, handshake.accept(greeting, self._here, self._key, nonce))

    def _release(self, made: socket.socket) -> None:
        self._waiter.watch(made.fileno(), 0)
        del self._visits[made.fileno()]

    def _away(self, descriptor: int) -> None:
        made = self._visits[descriptor].talk.made
        self._release(made)
        sockets.end(made)


def _peer(made: socket.socket) -> str:
    try:
        return str(made.getpeername()[0])
    except OSError:
        return "an address that is gone"
