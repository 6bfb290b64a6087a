"""Calls for work: numbered, one at a time, and repeated unchanged until the answer is known.

A lost answer therefore leaves no task leased to a trainer that does not know of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from edl.errors import MasterError, Refused, Unavailable
from edl.master import protocol
from edl.master.client import Client
from edl.master.connection import ANSWER_S
from edl.master.leases import LeaseTable

LAST_CALL_S = 0.2
"""Time-out of each of the last calls to a master that may be away; part of the grace period."""


@dataclass(frozen=True)
class WorkRequest:
    """A call for work, which can be repeated unchanged."""

    number: int
    report: protocol.Report
    want: int
    wait_s: float
    scope: protocol.Json
    """Which tasks: `kinds` and `datasets`."""


@dataclass(frozen=True)
class WorkResult:
    """The outcome of a call, after it was entered in the lease table."""

    leases: tuple[protocol.Lease, ...]
    refused: list[str]
    """Tasks whose reports came too late."""
    state: str
    again_s: float | None
    settling: bool = False
    """Whether the master leases nothing for now, because it took over."""


class WorkCalls:
    """The numbered calls of one incarnation; a sender needs exclusive access."""

    def __init__(self, lease_table: LeaseTable) -> None:
        self._lease_table = lease_table
        self._lock = threading.Lock()
        self._number = 0
        self.generation = 0
        """The generation of the newest master that was joined."""
        self.unanswered: WorkRequest | None = None
        """The request that was sent and whose answer is not known."""

    @contextmanager
    def exclusive(self, timeout_s: float) -> Iterator[bool]:
        """Exclusive access for sending; yields False where another holder keeps it too long."""
        acquired = self._lock.acquire(timeout=timeout_s)
        try:
            yield acquired
        finally:
            if acquired:
                self._lock.release()

    def new_request(
        self, report: protocol.Report, scope: protocol.Json, want: int = 0, wait_s: float = 0.0
    ) -> WorkRequest:
        """A request with the next number."""
        self._number += 1
        return WorkRequest(self._number, report, want, wait_s, scope)

    def send(self, client: Client, request: WorkRequest, answer_s: float = ANSWER_S) -> WorkResult:
        """Sends a request, new or repeated, and enters its answer in the lease table.

        Raises:
            Unavailable: There is no answer; the request stays unanswered.
            Refused: The master refuses the request, which is not to be repeated.
        """
        self.unanswered = request
        scope = {**request.scope, "call": request.number}
        try:
            response = client.work(
                request.report,
                want=request.want,
                wait_s=request.wait_s,
                scope=scope,
                answer_s=answer_s,
            )
        except Refused:
            self.unanswered = None
            raise
        if response.generation < self.generation:
            raise Unavailable("a master that was replaced still answers")
        self.unanswered = None
        refused = self._lease_table.apply_results(request.report, response.results, request.number)
        self._lease_table.mark_durable(request.number if response.safe is None else response.safe)
        leases = tuple(lease for lease in response.leases if self._lease_table.add(lease))
        return WorkResult(leases, refused, response.state, response.again_s, response.settling)

    def flush(self, client: Client, *, back: str | None = None) -> bool:
        """Reports done and failed tasks, in short tries; False if the master did not answer.

        Args:
            client: The client to use.
            back: A data set whose unfinished tasks are handed back.
        """
        with self.exclusive(LAST_CALL_S) as acquired:
            try:
                if acquired and self.unanswered is not None:
                    self.send(client, replace(self.unanswered, wait_s=0.0), LAST_CALL_S)
                report = self._lease_table.report()
                if back is not None:
                    report.back = self._lease_table.unfinished(back)
                if report:
                    self.send(client, self.new_request(report, {}), LAST_CALL_S)
            except MasterError:
                return False
        return True
