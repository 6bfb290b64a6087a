"""Heartbeats with the progress of each task; the response lists the leases that were lost.

A master that has just taken over knows no trainer: heartbeats and other calls join it again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from edl.errors import EdlError, MasterError, Refused, Unavailable
from edl.master import protocol
from edl.master.client import Client
from edl.master.leases import LeaseTable

log = logging.getLogger("edl")
T = TypeVar("T")

_UNKNOWN, _CONFLICT = 404, 409


class HeartbeatSession(Protocol):
    """The part of a session that heartbeats use."""

    lease_table: LeaseTable

    @property
    def joins(self) -> int:
        """How often a master was joined."""
        ...

    def client(self) -> Client:
        """Returns a client with a connection of its own."""
        ...

    def rejoin(self, joins_before: int) -> None:
        """Joins again, unless that happened since."""
        ...

    def stop(self, reason: str, error: EdlError | None = None) -> None:
        """Ends all loops; they raise the error, if there is one."""
        ...


_MIN_INTERVAL_S = 0.25
"""Between two heartbeats, until an answer says more; the master's view of a trainer that is killed
is no older, unless a step takes longer."""


class Heartbeat:
    """A thread that sends heartbeats until it is stopped: regularly, and soon after steps."""

    def __init__(self, session: HeartbeatSession, every_s: float) -> None:
        self._session = session
        self._every_s, self._pace_s = every_s, min(_MIN_INTERVAL_S, every_s)
        self._stopped = threading.Event()
        self._progress_made = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edl-heartbeat", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def note_progress(self) -> None:
        """Sends the next heartbeat soon: the process might be killed before the regular one."""
        if not self._progress_made.is_set():
            self._progress_made.set()

    def stop(self) -> None:
        """Ends the thread; does not wait for a call under way."""
        self._stopped.set()
        self._progress_made.set()

    def _run(self) -> None:
        client = self._session.client()
        try:
            while not self._stopped.wait(self._pace_s):
                self._progress_made.wait(max(0.0, self._every_s - self._pace_s))
                self._progress_made.clear()
                if not self._stopped.is_set():
                    self._send(client)
        finally:
            client.close()

    def _send(self, client: Client) -> None:
        session = self._session
        joins_before, entries = session.joins, session.lease_table.held_entries()
        try:
            response = client.heartbeat(entries)
        except Unavailable:
            return  # the fetcher logs that the master is away; the next heartbeat makes up for this
        except Refused as error:
            self._handle_refusal(error, joins_before)
            return
        self._apply_response(entries, response)

    def _handle_refusal(self, error: Refused, joins_before: int) -> None:
        """Returns a new master knows no trainer: without the held tasks it soon leases them to others."""
        if is_unknown_trainer(error):
            try:
                self._session.rejoin(joins_before)
            except MasterError as rejoin_error:
                log.info("could not join again yet: %s", rejoin_error)
        elif is_replaced(error):
            self._session.stop("another process has this trainer's name", error)
            self._stopped.set()
        else:
            log.warning("the master refuses this trainer's heartbeat: %s", error)

    def _apply_response(
        self, entries: list[protocol.Json], response: protocol.HeartbeatResponse
    ) -> None:
        self._pace_s = response.pace_s or self._pace_s
        lost = self._session.lease_table.drop_lost(entries, response.lost)
        if lost:
            log.warning("the leases of %s are over: other trainers train them", ", ".join(lost))
        if response.state == "stop":
            self._session.stop("the master requested a stop")


def call_joined(session: HeartbeatSession, call: Callable[[], T]) -> T:
    """Makes a call; joins and repeats it where the master does not know this trainer."""
    joins_before = session.joins
    try:
        return call()
    except Refused as error:
        if not is_unknown_trainer(error):
            raise
    session.rejoin(joins_before)
    return call()


def is_unknown_trainer(error: Refused) -> bool:
    """Returns whether the master refused the call because it does not know this trainer (any more)."""
    return error.status == _UNKNOWN and error.field == "trainer"


def is_replaced(error: Refused) -> bool:
    """Returns whether the master refused the call because a newer process has this trainer's name."""
    return error.status == _CONFLICT and error.field == "incarnation"
