"""The ledger with its journal: what was answered survives the process.

Commands change the ledger at once and are written together: while one write is on its way to
the disk, the next ones gather. An answer is given only when its command is on the disk.
"""

import logging
from pathlib import Path
from typing import Any

from master import checks, journal
from master.errors import JournalError, RefusedError
from master.journal import Journal
from master.ledger import VERSION, Ledger

Json = dict[str, Any]
log = logging.getLogger(__name__)

_NONSENSE = (RefusedError, LookupError, TypeError, ValueError, AttributeError)
"""What replaying raises where files were mixed up or edited: no line of a whole journal does."""


class Books:
    """Not thread-safe but for `write`, which may run in a thread of its own."""

    def __init__(self, fresh: Ledger, directory: Path) -> None:
        """Opens the journal and reads it.

        Args:
            fresh: Empty books, with the job's limits.
            directory: Of the journal.

        Raises:
            JournalError: It cannot be read, belongs to another job, or is in use.
        """
        self._fresh = fresh
        self._journal = Journal(directory)
        self._waiting: list[bytes] = []
        self._compact_at = journal.MOST_BYTES
        try:
            self.ledger = self._replay(self._journal.read())
            self._journal.replace(self.ledger.dump())
        except JournalError:
            self._journal.close()
            raise

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever booked: a pod that was begun twice before it served is new."""
        return self.ledger.dump() == self._fresh.dump()

    def inherited(self, dumped: Json) -> Ledger:
        """The books that another master left, as a new generation; `adopt` goes on with them.

        Raises:
            JournalError: They are of another job, or make no sense.
        """
        ledger = self._load(dumped)
        ledger.execute({"do": "takeover"})
        return ledger

    def take_over(self, dumped: Json) -> None:
        """Goes on from books that another master left; on the disk when this returns.

        Raises:
            JournalError: They are of another job, make no sense, or cannot be written.
        """
        self.adopt(self.inherited(dumped))

    def adopt(self, ledger: Ledger) -> None:
        """Goes on with other books; they are on the disk when this returns.

        Raises:
            JournalError: They cannot be written.
        """
        self._journal.replace(ledger.dump())
        self.ledger = ledger

    def execute(self, command: Json) -> Json:
        """Carries a command out; its answer may be given after the next `write`.

        Raises:
            RefusedError: It changed nothing.
        """
        checks.check(self.ledger, command)
        line = journal.line(command)  # first, so that what cannot be written changes nothing
        answer = self.ledger.execute(command)
        if _matters(command, answer):
            self._waiting.append(line)
        return answer

    @property
    def waiting(self) -> bool:
        """Whether something is to be written."""
        return bool(self._waiting)

    def take(self) -> list[bytes]:
        """What is to be written; the caller writes it, in this order."""
        lines, self._waiting = self._waiting, []
        return lines

    def write(self, lines: list[bytes]) -> None:
        """Brings commands to the disk.

        Raises:
            JournalError: They are not there; call `restore`.
        """
        if lines:
            self._journal.append(lines)

    def restore(self) -> None:
        """Goes back to what is on the disk, after a write that failed.

        Raises:
            JournalError: It cannot be read either.
        """
        self._waiting = []
        self.ledger = self._replay(self._journal.read())

    def compact(self) -> None:
        """Replaces a long journal by whole books, which hold what waits to be written as well.

        Where that does not work, the journal grows on, and this is tried again once it has grown
        as much again.
        """
        if self._journal.size <= self._compact_at:
            return
        try:
            self._journal.replace(self.ledger.dump())
        except JournalError as error:
            self._compact_at = self._journal.size + journal.MOST_BYTES
            log.warning("%s: the journal grows on", error)
        else:
            self._compact_at = journal.MOST_BYTES
            self._waiting = []

    def close(self) -> None:
        """Writes what waits, as well as it can, and gives the journal back."""
        try:
            self.write(self.take())
        except JournalError as error:
            log.warning("%s", error)
        self._journal.close()

    def _replay(self, found: journal.Found) -> Ledger:
        ledger = self._load(found.books)
        try:
            for command in found.commands:
                ledger.execute(command)
        except _NONSENSE as error:
            raise JournalError(
                f"the journal does not fit its books ({error!r:.100}): restore or remove both"
            ) from error
        return ledger

    def _load(self, dumped: Json | None) -> Ledger:
        fresh = self._fresh
        ledger = Ledger(fresh.job, most_dropped=fresh.most_dropped, max_steps=fresh.max_steps)
        if dumped is None:
            return ledger
        if (dumped.get("job"), dumped.get("version")) != (fresh.job, VERSION):
            raise JournalError(
                f"these books are of job {dumped.get('job')!r}, version {dumped.get('version')!r}; "
                f"this master serves {fresh.job!r}, version {VERSION}: name another directory"
            )
        try:
            ledger.load(dumped)
        except _NONSENSE as error:
            raise JournalError(
                f"the books make no sense ({error!r:.100}): restore or remove them"
            ) from error
        return ledger


def _matters(command: Json, answer: Json) -> bool:
    """Whether it changed anything: calls for work that brought nothing did not."""
    if command["do"] not in ("work", "more"):
        return True
    return bool(answer["tasks"] or answer["results"])
