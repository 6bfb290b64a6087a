"""The ledger with its journal: every answered command survives the process.

Commands change the ledger at once and are written in groups: during one write the next commands
gather. A call is answered only when its command is on the disk.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

from master import commands, journal
from master.commands import Command, More, TakeOver, Work
from master.errors import JournalError, UnavailableError
from master.journal import Journal
from master.ledger import VERSION, Ledger
from master.status import ServiceCounters
from runtime.call_checks import Json, RefusedError

P = ParamSpec("P")
log = logging.getLogger(__name__)

_JOURNAL = "calls are refused, trainers try again"
_SHORTER = "the journal grows"

_NONSENSE = (RefusedError, LookupError, TypeError, ValueError, AttributeError)
"""Errors that a replay of mixed-up or edited files raises; intact journals raise none of them."""


class DurableLedger:
    """A ledger whose commands are written to a journal before they are answered.

    Not thread-safe, except that `write` may run in another thread.
    """

    def __init__(self, empty: Ledger, directory: Path) -> None:
        """Opens the journal and replays it.

        Args:
            empty: An empty ledger, with the job's limits.
            directory: The directory of the journal.

        Raises:
            JournalError: The journal cannot be read, belongs to another job, or is in use.
        """
        self._empty = empty
        self._journal = Journal(directory)
        self._pending_lines: list[bytes] = []
        self._compact_at = journal.MAX_BYTES
        self._lacks_commands = False
        """Whether a write failed, so that pending commands may depend on commands that were
        lost."""
        try:
            self.ledger = self._replay(self._journal.read())
            self._journal.replace(self.ledger.dump())
        except JournalError:
            self._journal.close()
            raise

    @property
    def is_new(self) -> bool:
        """Whether no command was ever executed, by this process or an earlier one."""
        return self.ledger.dump() == self._empty.dump()

    def load_next_generation(self, snapshot: Json) -> Ledger:
        """Returns a ledger that resumes from another master's snapshot; see `adopt`.

        Raises:
            JournalError: The snapshot belongs to another job, or is inconsistent.
        """
        ledger = self._load(snapshot)
        ledger.execute(TakeOver())
        return ledger

    def adopt(self, ledger: Ledger) -> None:
        """Writes another ledger to the disk and continues with it.

        Raises:
            JournalError: The ledger cannot be written.
        """
        self._journal.replace(ledger.dump())
        self.ledger = ledger

    def execute(self, command: Command) -> Json:
        """Executes a command; the call may be answered after the next `write`.

        Raises:
            RefusedError: The command is refused; nothing has changed.
        """
        self.ledger.check(command)
        # formatted before it is executed: a command that cannot be written must change nothing
        line = journal.line(commands.to_json(command))
        answer = self.ledger.execute(command)
        # a call for work with an empty answer changed nothing
        is_empty = type(command) in (Work, More) and not (answer["tasks"] or answer["results"])
        if not is_empty:
            self._pending_lines.append(line)
        return answer

    @property
    def has_pending(self) -> bool:
        """Whether commands wait to be written."""
        return bool(self._pending_lines)

    def take_pending(self) -> list[bytes]:
        """Takes the commands that wait to be written; the caller writes them in this order."""
        lines, self._pending_lines = self._pending_lines, []
        return lines

    def write(self, lines: list[bytes]) -> None:
        """Writes commands to the disk.

        Raises:
            JournalError: The commands are not on the disk; call `reload`.
        """
        if not lines:
            return
        try:
            self._journal.append(lines)
        except JournalError:
            self._lacks_commands = True
            raise

    def reload(self) -> None:
        """Restores the state on the disk after a failed write.

        Raises:
            JournalError: The journal cannot be read either.
        """
        self._pending_lines = []
        self.ledger = self._replay(self._journal.read())
        self._lacks_commands = False

    def compact(self) -> str | None:
        """Replaces a long journal with a snapshot, which includes the pending commands.

        If that fails, the journal continues to grow. The next attempt follows when it has grown by
        another `journal.MAX_BYTES`.

        Returns:
            None if the journal is short, "" if it was replaced, otherwise the error.
        """
        if self._journal.size <= self._compact_at:
            return None
        try:
            self._journal.replace(self.ledger.dump())
        except JournalError as error:
            self._compact_at = self._journal.size + journal.MAX_BYTES
            log.warning("%s: the journal continues to grow", error)
            return str(error)
        self._compact_at = journal.MAX_BYTES
        self._pending_lines = []
        return ""

    def close(self) -> None:
        """Tries to write the pending commands, and releases the journal."""
        try:
            if not self._lacks_commands:  # they cannot be replayed without the lost ones
                self.write(self.take_pending())
        except JournalError as error:
            log.warning("%s", error)
        self._journal.close()

    def _replay(self, contents: journal.JournalContents) -> Ledger:
        ledger = self._load(contents.snapshot)
        try:
            for line in contents.commands:
                ledger.execute(commands.from_json(line))
        except _NONSENSE as error:
            raise JournalError(
                f"the journal does not fit its snapshot ({error!r:.100}): restore or remove both"
            ) from error
        return ledger

    def _load(self, snapshot: Json | None) -> Ledger:
        empty = self._empty
        ledger = Ledger(
            empty.job, max_dropped_share=empty.max_dropped_share, max_steps=empty.max_steps
        )
        if snapshot is None:
            return ledger
        job, version = snapshot.get("job"), snapshot.get("version")
        if job != empty.job:
            raise JournalError(
                f"this snapshot is of job {job!r}; this master serves {empty.job!r}: "
                "name another directory"
            )
        if version != VERSION:
            raise JournalError(
                f"this snapshot is of version {version!r}; this master reads {VERSION}: "
                "use the EDL that wrote it"
            )
        try:
            ledger.load(snapshot)
        except _NONSENSE as error:
            raise JournalError(
                f"the snapshot is inconsistent ({error!r:.100}): restore or remove it"
            ) from error
        return ledger


class GroupCommit:
    """Calls that wait until their commands are on the disk, and the loop that writes them."""

    def __init__(
        self,
        durable_ledger: DurableLedger,
        counters: ServiceCounters,
        note_undone: Callable[[], None],
        end: Callable[[str], None],
    ) -> None:
        """Creates the queue; `run` starts to write.

        Args:
            durable_ledger: The ledger whose commands are written.
            counters: Counts the writes.
            note_undone: Called when commands were undone, because they could not be written.
            end: Called with the reason when this master cannot continue.
        """
        self._durable_ledger = durable_ledger
        self._counters = counters
        self._note_undone = note_undone
        self._end = end
        self._unwritten: list[asyncio.Future[None]] = []
        self._wanted = asyncio.Event()

    async def wait(self) -> None:
        """Waits until all executed commands are on the disk.

        Raises:
            UnavailableError: The commands could not be written, and were undone.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unwritten.append(written)
        self._wanted.set()
        await written

    async def run(self) -> None:
        """Writes whenever a call waits, until it is cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            lines, waiting = self._durable_ledger.take_pending(), self._unwritten
            self._unwritten = []
            try:
                if lines:
                    await run_in_thread(self._durable_ledger.write, lines)
                    self._counters.writes += 1
                    self._counters.note_write(_JOURNAL)
            except JournalError as error:
                self._unwritten = waiting + self._unwritten
                self._undo(error)
                continue
            for written in waiting:
                if not written.done():
                    written.set_result(None)
            self._compact()

    def _compact(self) -> None:
        error = self._durable_ledger.compact()
        if error is not None:
            self._counters.failed_writes += bool(error)
            self._counters.note_write(_SHORTER, error)

    def refuse(self, reason: str) -> None:
        """Refuses all calls that wait."""
        waiting, self._unwritten = self._unwritten, []
        for written in waiting:
            if not written.done():
                written.set_exception(UnavailableError(reason))

    def _undo(self, error: JournalError) -> None:
        """Restores the ledger on the disk, and refuses all calls that wait."""
        log.error("%s: calls are refused until it can be written", error)
        self._counters.failed_writes += 1
        self._counters.note_write(_JOURNAL, str(error))
        try:
            self._durable_ledger.reload()
        except JournalError as reload_error:
            self._end(str(reload_error))
        self._note_undone()
        self.refuse(str(error))


async def run_in_thread(function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Runs a blocking function in a thread; a cancellation waits until the thread has finished."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait({thread})
        if not thread.cancelled() and (error := thread.exception()) is not None:
            log.warning("%s", error)
        raise
