"""The leader, the member of rank 0: it leases the group's records and acknowledges them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from edl.data.work_fetcher import WorkFetcher
from edl.errors import EdlError, MasterError, Refused, RoundOver, Unavailable
from edl.master import protocol
from edl.master.heartbeat import is_replaced
from edl.master.leases import LeaseTable
from edl.master.session import Loop
from edl.master.settings import Settings
from edl.overriding import override
from edl.sync.group_session import GroupSession
from edl.sync.lease_queue import LeaseQueue
from edl.sync.plans import Plan

log = logging.getLogger("edl")

_STEPS_AHEAD = 64
"""Number of steps whose records are leased ahead, so that a few calls per second are enough."""
_CLOSE_S = 1.0
_CONFLICT = 409


class Leader(Loop):
    """Leases, plans and acknowledges the group's records, while this process has rank 0."""

    def __init__(
        self,
        settings: Settings,
        lease_table: LeaseTable,
        dataset: str,
        description: protocol.Json,
        *,
        after: int,
        batch_size: int,
        on_stop: Callable[[], None],
        is_round_over: Callable[[], bool],
        target: protocol.Json | None = None,
    ) -> None:
        """Joins at the master in the group's name.

        Args:
            settings: This trainer's settings.
            lease_table: This trainer's copy of the group's lease table.
            dataset: Name of the data set.
            description: Description of the data set, for the master.
            after: The newest term that this trainer's model contains.
            batch_size: Records of a step.
            on_stop: Called on any thread when the master stops the job.
            is_round_over: Called while the master does not answer; True ends the retries.
            target: Position to which the data is set back before the first lease; None keeps the
                current position.

        Raises:
            Refused: The model lacks acknowledged records (`is_behind`).
            MasterError: The master refuses something else, or did not answer for too long.
        """
        self._plans = 0
        self._on_stop, self._ending = on_stop, False
        self.session = GroupSession(settings, lease_table, dataset, after, is_round_over)
        self.replaced = False
        """Whether another member leads now."""
        self.has_rewound = False
        """Whether the data was set back to the target."""
        try:
            self.session.describe(description)
            self.session.join()
            if target is not None:
                self._rewind_data(target)
        except MasterError:
            self.session.abandon()
            raise
        self.session.register(self)
        records_ahead = batch_size * _STEPS_AHEAD
        task_records = description["task_records"]
        self._lease_queue = LeaseQueue(lease_table, records_ahead, task_records)
        is_full_enough = self._lease_queue.is_full_enough
        self._fetcher = WorkFetcher(
            self.session, self._lease_queue, dataset, "training", is_full_enough
        )
        self._fetcher.start()

    def _rewind_data(self, target: protocol.Json) -> None:
        """Sets the data back if the master supports it; otherwise the lost records are reported later."""
        try:
            answer = self.session.rewind(target)
        except Refused as error:
            if is_replaced(error):
                raise
            log.warning("the data is not set back with the model: %s", error)
            return
        self.has_rewound = True
        log.info(
            "the data is set back with the model: %s records are trained again",
            answer.get("records"),
        )

    def plan(self, records: int, wait_s: float) -> Plan | None:
        """Plans the next step; returns an empty plan if too few records are queued, and None at the end.

        Raises:
            EdlError: The master refused something, or too few records are queued and the master did
                not answer for longer than `patience_s`.
        """
        spans = self._lease_queue.next_step(records, wait_s)
        if spans is None:
            return None
        if not spans:
            self._fetcher.check_patience(self.session.patience_s)
        self._plans += 1
        name = f"{self.session.incarnation}-{self._plans}"
        return Plan(name, tuple(span for span in spans if span.count > 0))

    def begin_term(self, after: int) -> None:
        """Begins the term of a later round (`GroupSession.begin_term`)."""
        self.session.begin_term(after)
        self.rewind()

    def confirm_leadership(self) -> None:
        """Checks that this member still leads; it continues if the master does not answer.

        Raises:
            RoundOver: Another member leads.
        """
        try:
            if not self.replaced:
                self.session.confirm()
        except Refused as error:
            if not is_replaced(error):
                raise
            self.replaced = True
        except Unavailable as error:
            log.info("cannot check whether another member leads: %s", error)
        if self.replaced:
            raise RoundOver("another member leads by now")

    def rewind(self) -> None:
        """Puts the records of plans that were not trained back into the queue."""
        self._lease_queue.rewind()

    def report_ready(self) -> None:
        """Notes that the lease table has records to report."""
        self._lease_queue.report_ready()

    @override
    def wake(self, error: EdlError | None) -> None:
        """Handles the end of the session: another member leads, or the master has stopped the job."""
        if isinstance(error, MasterError):
            self.replaced = True
        elif not self._ending:
            self._on_stop()
        self._lease_queue.end()

    def finish(self) -> None:
        """Reports the remaining records, and leaves the job in the group's name."""
        self._ending = True
        self._lease_queue.end()
        self._fetcher.close(_CLOSE_S)
        self.session.leave()

    def abandon(self) -> None:
        """Ends the leadership without a call to the master."""
        self._lease_queue.end()
        self.session.abandon()
        self._fetcher.close(_CLOSE_S)


def is_behind(error: Refused) -> bool:
    """Returns whether a leader was refused because its model lacks acknowledged records."""
    return error.status == _CONFLICT and error.field == "term"
