"""Group commit: one write to the journal for all calls that wait for one."""

import asyncio
import logging
from collections.abc import Callable

from master.durable_ledger import DurableLedger
from master.errors import JournalError, UnavailableError
from master.status import ServiceCounters
from master.threads import run_in_thread

log = logging.getLogger(__name__)

_JOURNAL = "calls are refused, trainers try again"
_SHORTER = "the journal grows"


class GroupCommit:
    """The calls whose commands are not on the disk yet, and the loop that writes them."""

    def __init__(
        self,
        durable_ledger: DurableLedger,
        counters: ServiceCounters,
        note_undone: Callable[[], None],
        end: Callable[[str], None],
    ) -> None:
        """Writes nothing yet.

        Args:
            durable_ledger: The ledger whose commands are written.
            counters: Where writes are counted.
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
        """Returns when everything executed so far is on the disk.

        Raises:
            UnavailableError: It could not be written, and was undone.
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
        """Returns to the ledger on the disk, and refuses all calls that wait."""
        log.error("%s: calls are refused until it can be written", error)
        self._counters.failed_writes += 1
        self._counters.note_write(_JOURNAL, str(error))
        try:
            self._durable_ledger.reload()
        except JournalError as reload_error:
            self._end(str(reload_error))
        self._note_undone()
        self.refuse(str(error))
