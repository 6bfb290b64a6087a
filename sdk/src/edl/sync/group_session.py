"""The group's session at the master, under one name, and its permit to save checkpoints.

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
    """The leader's session in the group's name; the trainer's session handles signals and exits."""

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
            lease_table: This trainer's copy of the group's lease table.
            dataset: Name of the data set.
            after: The newest term that this trainer's model contains.
            is_round_over: Called while the master does not answer; True ends the retries.
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
        """Number of times that the session has joined a master."""
        return self._session.joins

    @property
    def over(self) -> bool:
        """Whether the session has ended."""
        return self._session.over

    def client(self) -> Client:
        """Returns a client of this incarnation with a separate connection."""
        return self._session.client()

    def describe(self, description: protocol.Json) -> None:
        """Sends the description of the data set to the master; retries as `join` does."""
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
        """Joins a restarted master (`Session.rejoin`); ends this session if another member has led since."""
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
            Unavailable: The master does not answer, and the round is over or `patience_s` has passed.
        """
        client = self._session.control()
        self._set_term(
            self._session.retry_while_away(
                lambda: call_joined(self, lambda: client.begin_term(self._dataset, after))
            )
        )

    def rewind(self, target: protocol.Json) -> protocol.Json:
        """Sets the data back to the records that the model contains, and forgets all earlier leases.

        Args:
            target: The fields of the call, except for the term.

        Returns:
            The master's answer.

        Raises:
            Refused: The target is not a position of this data set, or another member leads.
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
            MasterError: Another member leads, or the master does not answer.
        """
        entries = self.lease_table.held_entries()
        client = self._session.control()
        answer = call_joined(self, lambda: client.heartbeat(entries))
        self.lease_table.drop_lost(entries, answer.lost)

    def stepped(self) -> None:
        """Reports a step to the session's heartbeat (`Session.stepped`)."""
        self._session.stepped()

    def register(self, loop: Loop) -> None:
        """Registers a loop that is woken when the session ends (`Session.register`)."""
        self._session.register(loop)

    def stop(self, reason: str, error: EdlError | None = None) -> None:
        """Ends the session and wakes its loops (`Session.stop`)."""
        self._session.stop(reason, error)

    def leave(self) -> None:
        """Leaves the job in the group's name (`Session.leave`)."""
        self._session.leave()

    def abandon(self) -> None:
        """Ends the session without a call to the master, because another leader has joined or will join."""
        self._session.abandon()

    def _set_term(self, term: int) -> None:
        """Sets the term that this session leads; a rejoin resumes the term if no other member has led since."""
        self.term = term
        self._session.lead = {"dataset": self._dataset, "term": term, "begins": False}


class CheckpointPermit:
    """A client for the calls that save a checkpoint, valid while this member leads.

    It has a separate connection, because another thread writes checkpoints.
    """

    def __init__(self, session: GroupSession) -> None:
        self._session, self._client = session, session.client()
        self.job = session.job

    def request_save(self, newest: int = 0) -> protocol.Ticket:
        """Asks the master for permission to save (`Session.request_save`).

        Raises:
            Refused: Another member leads, or has led in the meantime.
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
        """Reports a checkpoint to the master (`Session.report_saved`)."""
        self._client.report_saved(ticket, path=path, step=step, ok=ok)

    def progress(self) -> protocol.Json:
        """Returns the progress of all data sets (`Session.progress`)."""
        return dict(self._client.status().get("datasets", {}))

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()
