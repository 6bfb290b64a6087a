"""A master in a thread of its own, which can be killed like a process."""

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from master import app
from master.fence import Fence
from master.ledger import Ledger
from master.metrics import MasterMetrics
from master.service import MasterService
from master.startup import open_ledger
from runtime import clock
from tests.support.thread_server import ThreadServer

TOKEN = "token-of-a-job-of-tests"  # noqa: S105 - of a server that lives as long as a test


class Clock:
    """A master's clock for tests: a machine that stalls for seconds causes no time-outs.

    It is the real clock without the time in which it could not be read; or it is held, and `move`
    advances it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_s = self._now_s = clock.monotonic_s()
        self._held = False

    def __call__(self) -> float:
        """The time; a master reads it four times a second at least."""
        with self._lock:
            real_s = clock.monotonic_s()
            if not self._held:
                self._now_s += min(real_s - self._read_s, _MAX_STEP_S)
            self._read_s = real_s
            return self._now_s

    def hold(self) -> None:
        """Stops the clock: from now on only `move` advances it."""
        self()
        self._held = True

    def resume(self) -> None:
        """Starts the clock again."""
        self()
        self._held = False

    def move(self, seconds: float) -> None:
        """Advances the clock."""
        with self._lock:
            self._now_s += seconds


_MAX_STEP_S = 0.3


class Served(ThreadServer):
    """A master that serves from its creation until `stop` or `kill`."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        fence: Fence | None = None,
        heartbeat_s: float = 0.2,
        drain_s: float = 0.1,
        **limits: Any,
    ) -> None:
        """Returns when it serves.

        Args:
            directory: The directory of the journal.
            port: The port; 0 for a free one.
            fence: Where snapshots are stored.
            heartbeat_s: The interval of trainers' heartbeats.
            drain_s: How long its end waits for unanswered calls.
            limits: Limits of the ledger.
        """
        super().__init__(port, drain_s)
        self.clock = Clock()
        self._ledger = Ledger("digits", **limits)
        self._directory, self._fence = directory, fence
        self._heartbeat_s = heartbeat_s
        self.service: MasterService
        self.start()

    def pass_s(self, seconds: float) -> None:
        """Advances its clock, which must be held; the rendezvous reads it at once."""
        self.clock.move(seconds)
        changed = self.service.long_polls._changed  # noqa: SLF001 - it may wait by the real clock
        self.loop.call_soon_threadsafe(changed.set)

    async def run(self) -> None:
        """See ThreadServer."""
        durable_ledger = open_ledger(self._ledger, self._directory, self._fence)
        with closing(durable_ledger):
            self.service = MasterService(
                durable_ledger, self._heartbeat_s, self.clock, self._fence, retry_s=0.01
            )
            application = app.make(self.service, TOKEN, MasterMetrics())
            await self.service.start()
            await self.serve(application, self.service.stop, self.service.halt)
