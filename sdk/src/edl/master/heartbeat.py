"""Heartbeats with the progress of each task; the response lists lost leases.

A master that has just taken over does not know the trainers: heartbeats and other calls rejoin it.
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
    """The part of a session that heartbeats need."""

    lease_table: LeaseTable

    @property
    def joins(self) -> int:
        """How often this session has joined a master."""
        ...

    def client(self) -> Client:
        """Returns a client with a separate connection."""
        ...

    def rejoin(self, joins_before: int) -> None:
        """Joins again, unless `joins` has changed from `joins_before` because another thread has joined."""
        ...

    def stop(self, reason: str, error: EdlError | None = None) -> None:
        """Ends all loops; if an error is given, the loops raise it."""
        ...


_MIN_INTERVAL_S = 0.25
"""Minimum time between heartbeats until the master sets another one.

If a trainer is killed, the master's view of it is at most this old, unless steps take longer.
"""


class Heartbeat:
    """A thread that sends heartbeats: at regular intervals, and soon after steps."""

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
        """Sends the next heartbeat soon, since the process may be killed before the regular heartbeat."""
        if not self._progress_made.is_set():
            self._progress_made.set()

    def stop(self) -> None:
        """Ends the thread without waiting for a running call."""
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
            return  # the fetcher logs that the master is away; the next heartbeat has the same content
        except Refused as error:
            self._handle_refusal(error, joins_before)
            return
        self._apply_response(entries, response)

    def _handle_refusal(self, error: Refused, joins_before: int) -> None:
        if is_unknown_trainer(error):
            # a new master would soon lease the held tasks to other trainers, so report them now
            try:
                self._session.rejoin(joins_before)
            except MasterError as rejoin_error:
                log.info("could not rejoin yet: %s", rejoin_error)
        elif is_replaced(error):
            self._session.stop("a newer process has this trainer's name", error)
            self._stopped.set()
        else:
            log.warning("the master refuses this trainer's heartbeat: %s", error)

    def _apply_response(
        self, entries: list[protocol.Json], response: protocol.HeartbeatResponse
    ) -> None:
        self._pace_s = response.pace_s or self._pace_s
        lost = self._session.lease_table.drop_lost(entries, response.lost)
        if lost:
            log.warning("leases lost: other trainers train %s", ", ".join(lost))
        if response.state == "stop":
            self._session.stop("the master requested a stop")


def call_joined(session: HeartbeatSession, call: Callable[[], T]) -> T:
    """Makes a call; if the master does not know this trainer, rejoins and repeats the call."""
    joins_before = session.joins
    try:
        return call()
    except Refused as error:
        if not is_unknown_trainer(error):
            raise
    session.rejoin(joins_before)
    return call()


def is_unknown_trainer(error: Refused) -> bool:
    """Returns whether the master refused the call because it does not know this trainer."""
    return error.status == _UNKNOWN and error.field == "trainer"


def is_replaced(error: Refused) -> bool:
    """Returns whether the master refused the call because a newer process has this trainer's name."""
    return error.status == _CONFLICT and error.field == "incarnation"
