"""The group's membership of the job, under one name at the master, and its right to checkpoints.

The next leader joins under that name as a new incarnation and reports its own copy of the lease
table, so no record is trained twice and none is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from edl.errors import EdlError, Refused
from edl.master import protocol
from edl.master.client import Client
from edl.master.heartbeat import call_joined, is_replaced, is_unknown_trainer
from edl.master.leases import LeaseTable
from edl.master.session import Loop, Session
from edl.master.settings import Settings

log = logging.getLogger("edl")

GROUP = "edl:group"
"""The name that all members of a synchronous job share at the master."""


class GroupSession:
    """The leader's session in the group's name; its own session handles signals and exits."""

    def __init__(
        self,
        settings: Settings,
        lease_table: LeaseTable,
        dataset: str,
        after: int,
        is_round_over: Callable[[], bool],
    ) -> None:
        """Does not call the master yet.

        Args:
            settings: The trainer's settings.
            lease_table: This trainer's copy of the group's.
            dataset: Name of the data set.
            after: The newest term in which its model was trained.
            is_round_over: Called while the master is away.
        """
        self._session = Session(replace(settings, trainer=GROUP), lease_table, is_round_over)
        self.lease_table = lease_table
        self.work_calls = self._session.work_calls
        self.incarnation = self._session.incarnation
        self.patience_s = settings.patience_s
        self._dataset, self._after = dataset, after
        self._set_term(0)

    @property
    def job(self) -> str:
        """The job's name."""
        return self._session.job

    @property
    def joins(self) -> int:
        """How often a master was joined."""
        return self._session.joins

    @property
    def over(self) -> bool:
        """As `Session.over`."""
        return self._session.over

    def client(self) -> Client:
        """A client of this incarnation with a connection of its own."""
        return self._session.client()

    def describe(self, description: protocol.Json) -> None:
        """Describes the data set; retries as `join` does."""
        self._session.describe(self._dataset, description)

    def join(self) -> None:
        """Joins in place of the previous leader, and reports the lease table."""
        if self.joins:
            return
        self.lease_table.drop_unstarted()
        done, held_tasks = self.lease_table.handover()
        lead = {"dataset": self._dataset, "term": self._after, "begins": True}
        joined = self._session.retry_while_away(lambda: self._session.enter(done, held_tasks, lead))
        self._set_term(joined.term)
        self.lease_table.complete_handover(joined.lost)
        log.info("leading: %d tasks taken over, %d reported as done", len(held_tasks), len(done))
        self._session.start_heartbeat(self, joined.heartbeat_s)

    def rejoin(self, joins_before: int) -> None:
        """As `Session.rejoin`; ends this session if another member has led since."""
        try:
            self._session.rejoin(joins_before)
        except Refused as error:
            if is_replaced(error):
                self.stop("another member leads", error)
            raise

    def begin_term(self, after: int) -> None:
        """Begins the term of a later round.

        Raises:
            Refused: Another member leads, or the model lacks acknowledged records.
            Unavailable: The master is away, and the round is over or `patience_s` has passed.
        """
        client = self._session.control()
        self._set_term(
            self._session.retry_while_away(
                lambda: call_joined(self, lambda: client.begin_term(self._dataset, after))
            )
        )

    def rewind(self, target: protocol.Json) -> protocol.Json:
        """Sets the data back to what the model contains, and forgets all leases of before.

        Args:
            target: The fields of the call, without those that this session knows.

        Returns:
            The master's answer.

        Raises:
            Refused: It is not a position of this data set, or another member leads.
        """
        client, fields = self._session.control(), {**target, "term": self.term}
        answer = self._session.retry_while_away(
            lambda: call_joined(self, lambda: client.rewind(self._dataset, fields))
        )
        self.lease_table.rewind(self._dataset, int(answer["base"]))
        return answer

    def confirm(self) -> None:
        """Asks the master whether this member still leads, and removes lost leases.

        Raises:
            MasterError: Another member leads, or the master is away.
        """
        entries = self.lease_table.held_entries()
        client = self._session.control()
        answer = call_joined(self, lambda: client.heartbeat(entries))
        self.lease_table.drop_lost(entries, answer.lost)

    def stepped(self) -> None:
        """As `Session.stepped`."""
        self._session.stepped()

    def register(self, loop: Loop) -> None:
        """As `Session.register`."""
        self._session.register(loop)

    def stop(self, reason: str, error: EdlError | None = None) -> None:
        """As `Session.stop`."""
        self._session.stop(reason, error)

    def leave(self) -> None:
        """As `Session.leave`."""
        self._session.leave()

    def abandon(self) -> None:
        """Ends the session without a call to the master: another leader has joined, or will."""
        self._session.abandon()

    def _set_term(self, term: int) -> None:
        """Sets the term in which it leads, which it resumes if no other has led since."""
        self.term = term
        self._session.lead = {"dataset": self._dataset, "term": term, "begins": False}


class CheckpointPermit:
    """A client for the calls that save a checkpoint, valid as long as a member leads.

    It has a connection of its own, because checkpoints are written by another thread.
    """

    def __init__(self, session: GroupSession) -> None:
        self._session, self._client = session, session.client()
        self.job = session.job

    def request_save(self, newest: int = 0) -> protocol.Ticket:
        """As `Session.request_save`.

        Raises:
            Refused: Another member leads, or has led and ended.
        """
        joins = self._session.joins
        try:
            return self._client.request_save(newest)
        except Refused as error:
            if self._session.over or not is_unknown_trainer(error):
                raise
        self._session.rejoin(joins)
        return self._client.request_save(newest)

    def report_saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """As `Session.report_saved`."""
        self._client.report_saved(ticket, path=path, step=step, ok=ok)

    def progress(self) -> protocol.Json:
        """As `Session.progress`."""
        return dict(self._client.status().get("datasets", {}))

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()
