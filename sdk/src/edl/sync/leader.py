"""What only the member of rank 0 does: it leases the group's records and acknowledges them.

The group has one name at the master. Who leads next joins under it as a new incarnation and tells
what its own copy of the book says, so nothing is trained twice and nothing is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from edl import clock, wire
from edl.backoff import Backoff
from edl.book import Book
from edl.courier import Courier
from edl.errors import EdlError, MasterError, Refused, RoundOver, Unavailable
from edl.heart import Heart, lost_books, replaced
from edl.session import Loop, Session
from edl.settings import Settings
from edl.sync.shares import Plan, Span
from edl.sync.stock import Stock

log = logging.getLogger("edl")

GROUP = "edl:group"
"""The name that all members of a synchronous job share at the master."""
_STEPS_AHEAD = 64
"""So many steps' records are leased ahead: the master is called some times a second, not more."""
_CLOSE_S = 1.0
_CONFLICT = 409


class GroupSession(Session):
    """The group's membership of the job; signals and exits are the business of the trainer's own."""

    def __init__(
        self, found: Settings, book: Book, name: str, after: int, over: Callable[[], bool]
    ) -> None:
        """Calls nobody yet.

        Args:
            found: The trainer's settings.
            book: This trainer's copy of the group's book.
            name: Of the data set.
            after: The newest term in which its model was trained.
            over: Returns whether the round is over; called while the master is away.
        """
        super().__init__(replace(found, trainer=GROUP))
        self.book = book
        self.calls = type(self.calls)(book)
        self.term = 0
        """In which it leads."""
        self._name, self._after, self._over = name, after, over

    def join(self) -> None:
        """Joins in the place of whoever led before, and tells what the book says."""
        if self.joins:
            return
        done, held = self.book.inherit()
        lead = {"dataset": self._name, "term": self._after, "begins": True}
        found = self._patiently(lambda: self._control.join(done, held, lead))
        self._enter(found)
        self.term = found.term
        self.book.inherited(found.lost)
        log.info("leading: %d tasks taken over, %d told as done", len(held), len(done))
        self._heart = Heart(self, found.heartbeat_s)
        self._heart.start()

    @property
    def lead(self) -> wire.Json:
        """What a rejoin sends: the leader resumes its term if nobody has led since."""
        return {"dataset": self._name, "term": self.term, "begins": False}

    def rejoin(self, seen: int) -> None:
        """As in `Session`; ends this session where another has led since."""
        try:
            super().rejoin(seen)
        except Refused as error:
            if replaced(error):
                self.stop("another member leads", error)
            raise

    def begin_term(self, after: int) -> None:
        """Goes on in a later round.

        Raises:
            Refused: Another leads, or the model lacks acknowledged records.
            Unavailable: The master is away, and the round is over or patience is.
        """
        self.term = self._patiently(
            lambda: self._known(self._control.begin_term, self._name, after)
        )

    def confirm(self) -> None:
        """Asks whether it still leads, and what it still holds.

        Raises:
            MasterError: Another leads, or the master is away.
        """
        told = self.book.held()
        found = self._known(self._control.heartbeat, told)
        self.book.lose(told, found.lost)

    def abandon(self) -> None:
        """Leaves without telling the master: another leader has joined, or will."""
        self._left.set()
        if self._heart is not None:
            self._heart.stop()
        self._control.close()
        self._out.set()

    def _pause(self, backoff: Backoff, until_s: float, error: Unavailable) -> None:
        if self._over():
            raise error
        super()._pause(backoff, until_s, error)


class Saving:
    """The right to save, for as long as a member leads; has a connection of its own."""

    def __init__(self, session: GroupSession) -> None:
        self._session, self._client = session, session.client()
        self.job = session.job

    def ask_to_save(self, newest: int = 0) -> wire.Ticket:
        """As `Session.ask_to_save`.

        Raises:
            Refused: Another member leads, or has led and ended.
        """
        seen = self._session.joins
        try:
            return self._client.ask_to_save(newest)
        except Refused as error:
            if self._session.over or not lost_books(error):
                raise
        self._session.rejoin(seen)
        return self._client.ask_to_save(newest)

    def saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """As `Session.saved`."""
        self._client.saved(ticket, path=path, step=step, ok=ok)

    def progress(self) -> wire.Json:
        """As `Session.progress`."""
        return dict(self._client.status().get("datasets", {}))

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()


class Leader(Loop):
    """The leader's work in one process, for as long as it has rank 0."""

    def __init__(
        self,
        found: Settings,
        book: Book,
        name: str,
        description: wire.Json,
        *,
        after: int,
        batch_size: int,
        stopped: Callable[[], None],
        over: Callable[[], bool],
    ) -> None:
        """Joins at the master in the group's name.

        Args:
            found: This trainer's settings.
            book: Its copy of the group's.
            name: Of the data set.
            description: Of it, for the master.
            after: The newest term in which this trainer's model was trained.
            batch_size: Records of a step.
            stopped: Called when the master says that the job is to stop, on any thread.
            over: Whether the round is; asked while the master is away.

        Raises:
            Refused: The model lacks acknowledged records: see `behind`.
            MasterError: The master refuses something else, or was away for too long.
        """
        self._name = name
        self._plans = 0
        self._stopped, self._ending = stopped, False
        self.session = GroupSession(found, book, name, after, over)
        self.replaced = False
        """Whether another leads by now."""
        try:
            self.session.describe(name, description)
            self.session.join()
        except MasterError:
            self.session.abandon()
            raise
        self.session.register(self)
        ahead = batch_size * _STEPS_AHEAD
        self._stock = Stock(book, ahead, description["task_records"], self._away)
        # the same courier as in a loop, but it fills this stock
        self._courier = Courier(self.session, self._stock, name, "training", self._stock.calm)
        self._courier.start()

    def plan(self, records: int, wait_s: float) -> Plan | None:
        """The next step; an empty one where nothing can be said yet, None at the end.

        Raises:
            EdlError: The master refused something, or there is nothing left to train on and it
                was away for longer than `patience_s`.
        """
        found = self._stock.take(records, wait_s)
        if found is None:
            return None
        if not found:
            self._lose_patience()
        self._plans += 1
        name = f"{self.session.incarnation}-{self._plans}"
        return Plan(name, tuple(span for span in found if _worth(span)))

    def begin_term(self, after: int) -> None:
        """Leads in a later round; see `GroupSession.begin_term`."""
        self.session.begin_term(after)
        self.rewind()

    def confirm(self) -> None:
        """Makes sure that this member still leads; one that cannot know goes on.

        Raises:
            RoundOver: Another leads.
        """
        try:
            if not self.replaced:
                self.session.confirm()
        except Refused as error:
            if not replaced(error):
                raise
            self.replaced = True
        except Unavailable as error:
            log.info("whether another member leads is not known: %s", error)
        if self.replaced:
            raise RoundOver("another member leads by now")

    def rewind(self) -> None:
        """Plans that were not trained are to be made again."""
        self._stock.rewind()

    def told(self) -> None:
        """The book has something for the master."""
        self._stock.spoken()

    def wake(self, error: EdlError | None) -> None:
        """The session stops: another process leads, or the job has had its steps."""
        if isinstance(error, MasterError):
            self.replaced = True
        elif not self._ending:
            self._stopped()
        self._stock.end()

    def finish(self) -> None:
        """The end: tells the rest and leaves in the group's name."""
        self._ending = True
        self._stock.end()
        self._courier.close(_CLOSE_S)
        self.session.leave()

    def abandon(self) -> None:
        """Ends without a word."""
        self._stock.end()
        self.session.abandon()
        self._courier.close(_CLOSE_S)

    def _lose_patience(self) -> None:
        since_s, patience_s = self._courier.away_since_s, self.session.settings.patience_s
        if since_s is not None and clock.monotonic_s() - since_s > patience_s:
            text = f"the master has been away for more than {patience_s:g} s (EDL_PATIENCE_S)"
            raise Unavailable(text)

    def _away(self) -> bool:
        return self._courier.away_since_s is not None


def behind(error: Refused) -> bool:
    """Whether a model cannot lead because it lacks records that were acknowledged."""
    return error.status == _CONFLICT and error.field == "term"


def _worth(span: Span) -> bool:
    return span.count > 0
