"""Heartbeats: this trainer lives, and so far it is; what it lost comes back as the answer."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from edl import wire
from edl.book import Book
from edl.client import Client
from edl.errors import EdlError, MasterError, Refused, Unavailable

log = logging.getLogger("edl")

_UNKNOWN, _CONFLICT = 404, 409


class Member(Protocol):
    """What a heart needs of a session."""

    book: Book
    joins: int

    def client(self) -> Client:
        """A client with a connection of its own."""
        ...

    def rejoin(self, seen: int) -> None:
        """Joins again, unless that happened since."""
        ...

    def stop(self, reason: str, error: EdlError | None = None) -> None:
        """Loops are to end, with this error if there is one."""
        ...


_LEAST_S = 0.25
"""Between two beats; what is known of a trainer that is killed is no older, unless a step is."""


class Heart:
    """Beats in a thread until it is stopped: regularly, and soon after steps."""

    def __init__(self, member: Member, every_s: float) -> None:
        self._member = member
        self._every_s = every_s
        self._stopped = threading.Event()
        self._moved = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edl-heartbeat", daemon=True)

    def start(self) -> None:
        """Begins to beat."""
        self._thread.start()

    def moved(self) -> None:
        """A step was made: the master is to know soon, should this process be killed."""
        if not self._moved.is_set():
            self._moved.set()

    def stop(self) -> None:
        """Ends; does not wait for a call under way."""
        self._stopped.set()
        self._moved.set()

    def _run(self) -> None:
        client = self._member.client()
        try:
            while not self._stopped.wait(min(_LEAST_S, self._every_s)):
                self._moved.wait(max(0.0, self._every_s - _LEAST_S))
                self._moved.clear()
                if not self._stopped.is_set():
                    self._beat(client)
        finally:
            client.close()

    def _beat(self, client: Client) -> None:
        member = self._member
        seen, told = member.joins, member.book.held()
        try:
            found = client.heartbeat(told)
        except Unavailable:
            return  # the courier tells; a heartbeat that is missed comes again
        except Refused as error:
            self._refused(error, seen)
            return
        self._enter(told, found)

    def _refused(self, error: Refused, seen: int) -> None:
        """A new master knows nobody: it must hear at once what is held, or others train it."""
        if lost_books(error):
            try:
                self._member.rejoin(seen)
            except MasterError as again:
                log.info("joining again did not work yet: %s", again)
        elif replaced(error):
            self._member.stop("another process has this trainer's name", error)
            self._stopped.set()
        else:
            log.warning("the master refuses this trainer's heartbeat: %s", error)

    def _enter(self, told: list[wire.Json], found: wire.Pulse) -> None:
        lost = self._member.book.lose(told, found.lost)
        if lost:
            log.warning("the leases of %s are over: others train them", ", ".join(lost))
        if found.state == "stop":
            self._member.stop("the master says stop")


def lost_books(error: Refused) -> bool:
    """Whether the master does not know this trainer (more)."""
    return error.status == _UNKNOWN and error.field == "trainer"


def replaced(error: Refused) -> bool:
    """Whether a newer process has this trainer's name."""
    return error.status == _CONFLICT and error.field == "incarnation"
