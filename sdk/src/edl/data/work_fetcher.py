"""The thread that calls the master for a loop: it reports trained tasks and fetches new tasks.

While the master is away, the thread retries, and the loop continues with tasks that are already leased.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from edl import clock
from edl.backoff import Backoff
from edl.data.lease_sink import LeaseSink
from edl.errors import EdlError, MasterError, Refused, Unavailable
from edl.master import protocol
from edl.master.client import WorkCalls, WorkRequest, WorkResult
from edl.master.heartbeat import HeartbeatSession, is_unknown_trainer

log = logging.getLogger("edl")

POLL_S = 5.0
"""How long a call may wait at the master if this trainer holds no task."""
_AGAIN_S = 0.2
_MIN_AGAIN_S = 0.02
_BATCHED_CALL_S = 0.25
"""Pause between calls while no thread waits for the next call."""
_LOGGED_AFTER_TRIES = 3
_TURN_S = 0.5
"""How long to wait for another loop's call to end before checking whether this loop still has to call."""


Trim = Callable[[tuple[protocol.Lease, ...]], tuple[protocol.Lease, ...]]
"""Drops or shortens leases whose records the model has already seen."""


class WorkSession(HeartbeatSession, Protocol):
    """The attributes of a session that a work fetcher needs."""

    work_calls: WorkCalls


class WorkFetcher:
    """A thread that sends one loop's calls for work and passes the leases to the loop's queue."""

    def __init__(
        self,
        session: WorkSession,
        sink: LeaseSink,
        dataset: str,
        kind: str,
        is_full_enough: Callable[[], bool] | None = None,
        *,
        trim: Trim | None = None,
    ) -> None:
        """Creates the thread, without starting it.

        Args:
            session: The trainer's session.
            sink: Receives the leases.
            dataset: The data set whose tasks are leased.
            kind: The kind of tasks.
            is_full_enough: Returns whether no thread waits for the next call; called with the sink's lock
                held. If it returns True, calls are bundled, and a new report need not wake this thread.
            trim: Called with new leases; returns the leases that go to the sink.
        """
        self._trim = trim
        self._session, self._sink, self._is_full_enough = session, sink, is_full_enough
        self._called_s = 0.0
        self._scope: protocol.Json = {"datasets": [dataset], "kinds": [kind]}
        self._client = session.client()
        self._backoff = Backoff()
        self._again_at_s = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edl-fetcher", daemon=True)
        self._away_since_s: float | None = None
        """The time since which the master has not answered; None while it answers."""

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self, join_s: float) -> None:
        """Ends the thread, and aborts its current call to the master."""
        self._closed.set()
        self._client.close()
        if self._thread.is_alive():
            self._thread.join(join_s)

    def check_patience(self, patience_s: float) -> None:
        """Raises an error if the master has not answered for too long.

        Raises:
            Unavailable: The master has been away for longer than `patience_s`.
        """
        since_s = self._away_since_s
        if since_s is not None and clock.monotonic_s() - since_s > patience_s:
            text = f"the master has been away for more than {patience_s:g} s (EDL_PATIENCE_S)"
            raise Unavailable(text)

    def _run(self) -> None:
        try:
            while self._wait_until_due():
                self._call()
        except EdlError as error:
            self._sink.end(error)

    def _wait_until_due(self) -> bool:
        """Waits until there is something to report or to fetch; returns False when the loop ends."""
        sink = self._sink
        with sink.lock:
            while not sink.closing:
                pause_s = self._again_at_s - clock.monotonic_s()
                want = sink.leases_wanted()
                if self._session.lease_table.has_report or (want and pause_s <= 0):
                    pause_s = self._called_s + _BATCHED_CALL_S - clock.monotonic_s()
                    if pause_s <= 0 or self._is_full_enough is None or not self._is_full_enough():
                        return True
                    want = 1
                wait_s = pause_s if want else None
                if self._is_full_enough is not None:
                    wait_s = _BATCHED_CALL_S if wait_s is None else min(wait_s, _BATCHED_CALL_S)
                sink.call_due.wait(wait_s)
        return False

    def _call(self) -> None:
        calls, lease_table = self._session.work_calls, self._session.lease_table
        self._called_s = clock.monotonic_s()
        with calls.exclusive(_TURN_S) as acquired:
            if not acquired:
                return
            report = lease_table.report()
            with self._sink.lock:
                # a call with a report asks even before the pause ends, because the last report of an
                # epoch starts the next epoch
                asks = bool(report) or clock.monotonic_s() >= self._again_at_s
                want = self._sink.leases_wanted() if asks else 0
            idle = want > 0 and not report and lease_table.is_empty
            request = calls.new_request(report, self._scope, want, POLL_S if idle else 0.0)
            result = self._send_until_answered(request)
        if result is not None:
            self._apply(request, result)

    def _send_until_answered(self, request: WorkRequest) -> WorkResult | None:
        """Repeats the request until it is answered; returns None if the loop ends first.

        Raises:
            MasterError: The master refuses the request.
        """
        while not (self._closed.is_set() or self._sink.closing):
            joins_before = self._session.joins
            try:
                result = self._session.work_calls.send(self._client, request)
            except Unavailable as error:
                self._handle_away(error)
            except Refused as error:
                if not is_unknown_trainer(error):
                    raise
                self._rejoin(joins_before)
            else:
                self._handle_back()
                return result
        return None

    def _apply(self, request: WorkRequest, result: WorkResult) -> None:
        sink = self._sink
        if result.refused:
            log.warning(
                "the master did not accept results of %s: other trainers train these tasks",
                ", ".join(result.refused),
            )
        if result.state == "stop":
            self._session.stop("the master requested a stop")
            return
        for lease in result.leases:
            if lease.dataset not in self._scope["datasets"]:
                raise MasterError(
                    f"the master leased {lease.task}, which is not a task of this loop"
                )
        if result.leases:
            self._again_at_s = 0.0
            leases = result.leases
            sink.add_leases(leases if self._trim is None else self._trim(leases))
        elif request.want or result.state == "done":
            again_s = _AGAIN_S if result.again_s is None else result.again_s
            self._again_at_s = clock.monotonic_s() + max(again_s, _MIN_AGAIN_S)
            if result.settling:
                sink.mark_away()
            else:
                sink.mark_exhausted(done=result.state == "done")

    def _rejoin(self, joins_before: int) -> None:
        try:
            self._session.rejoin(joins_before)
        except Unavailable as error:
            self._handle_away(error)

    def _handle_away(self, error: Unavailable) -> None:
        if self._closed.is_set():
            return
        if self._away_since_s is None:
            self._away_since_s = clock.monotonic_s()
        self._sink.mark_away()
        pause_s = self._backoff.next_s()
        if self._backoff.tries == _LOGGED_AFTER_TRIES:
            log.warning("%s; continuing with tasks already leased, and retrying", error)
        self._closed.wait(pause_s)

    def _handle_back(self) -> None:
        if self._backoff.tries >= _LOGGED_AFTER_TRIES and self._away_since_s is not None:
            away_s = clock.monotonic_s() - self._away_since_s
            log.info("the master is back after %.1f s", away_s)
        self._backoff.reset()
        self._away_since_s = None
