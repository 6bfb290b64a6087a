"""Snapshots of the ledger outside of the pod: when a serving master stores them."""

import asyncio
import contextlib
import logging

from master import status
from master.durable_ledger import DurableLedger, run_in_thread
from master.errors import FencedError, JournalError
from master.fence import Fence
from master.ledger import Ledger
from master.membership import MemberId
from master.takeover import for_another_master
from runtime.backoff import Backoff

log = logging.getLogger(__name__)

_SNAPSHOT = "a master on another node would not know the newest state"
_SNAPSHOT_S = 1.0
"""Time between two snapshots of a changing ledger, in seconds."""
_MIN_PAUSE_S = 0.05
_COVER_S = 2.0
"""How long the last call of a trainer may wait for a snapshot."""
_MAX_BACKOFF_S = 10.0


class Snapshots:
    """Stores snapshots of a ledger in a fence, and knows what the newest one contains."""

    def __init__(
        self,
        durable_ledger: DurableLedger,
        fence: Fence | None,
        counters: status.ServiceCounters,
    ) -> None:
        """Creates the snapshots; `run` stores them.

        Args:
            durable_ledger: The ledger.
            fence: Stores the snapshots; None for a master without snapshots.
            counters: Counts the snapshots.
        """
        self._durable_ledger = durable_ledger
        self._fence = fence
        self._counters = counters
        self._changed = asyncio.Event()
        """Set while the newest snapshot lacks changes of the ledger."""
        self._wanted = asyncio.Event()
        """Set while a call waits for the next snapshot."""
        self._stored = asyncio.Event()
        """Set for a moment after each stored snapshot."""
        self._version, self._stored_version = 0, 0
        """Number of changes of the ledger now, and in the newest snapshot."""
        self._safe: dict[MemberId, int] = {}
        """Process -> its newest call in a snapshot. Each process of a trainer counts its calls from 1,
        so the key includes the incarnation."""

    @property
    def is_current(self) -> bool:
        """Whether the newest snapshot contains everything that was answered."""
        calls = _calls(self._durable_ledger.ledger)
        return not self._changed.is_set() and self._safe == calls

    def note_change(self) -> None:
        """Records a change of the ledger that the newest snapshot lacks."""
        self._version += 1
        self._changed.set()

    def request(self) -> None:
        """Requests the next snapshot soon."""
        self._wanted.set()

    def safe_call(self, name: str) -> int:
        """Returns the number of a trainer's newest call in a snapshot; without a fence, of its newest call."""
        trainer = self._durable_ledger.ledger.trainers.find(name)
        if trainer is None:
            return 0
        if self._fence is None:
            return trainer.call
        return self._safe.get((name, trainer.incarnation), 0)

    async def wait(self) -> None:
        """Waits briefly for a snapshot, because the caller may end and then cannot report again."""
        if self._fence is None:
            return
        version = self._version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COVER_S):
                while self._stored_version < version:
                    self._wanted.set()
                    await self._stored.wait()

    async def run(self) -> None:
        """Stores snapshots of changes, at most one a second unless a call waits for one.

        Raises:
            FencedError: Another master has taken over.
        """
        if self._fence is None:
            return
        pause_s, backoff = _SNAPSHOT_S, Backoff(2 * _SNAPSHOT_S, _MAX_BACKOFF_S)
        while True:
            await self._changed.wait()
            try:
                await self._store(self._fence)
                pause_s = _SNAPSHOT_S
                backoff.reset()
            except JournalError as error:
                log.warning("%s: trying again", error)
                self._counters.failed_snapshots += 1
                self._counters.note_write(_SNAPSHOT, str(error))
                self._changed.set()
                pause_s = backoff.next_s()
            await asyncio.sleep(_MIN_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s - _MIN_PAUSE_S):
                    await self._wanted.wait()

    async def store_last(self) -> None:
        """Tries once to store the changes that the newest snapshot lacks."""
        if self._fence is not None and self._changed.is_set():
            with contextlib.suppress(JournalError, FencedError):
                await self._store(self._fence)

    async def _store(self, fence: Fence) -> None:
        ledger = self._durable_ledger.ledger
        calls = _calls(ledger)
        dumped = for_another_master(ledger.dump())
        outcome, version = status.outcome(ledger), self._version
        self._changed.clear()
        self._wanted.clear()
        await run_in_thread(fence.write, ledger.generation, dumped, outcome)
        self._safe, self._stored_version = calls, version
        self._stored.set()
        self._stored.clear()
        self._counters.snapshots += 1
        self._counters.note_write(_SNAPSHOT)


def _calls(ledger: Ledger) -> dict[MemberId, int]:
    """Returns the number of the newest call of each process."""
    return {(trainer.name, trainer.incarnation): trainer.call for trainer in ledger.trainers}
