"""A master in a thread of its own, which can be killed like a process."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from aiohttp import web

from master import app
from master.fence import Fence
from master.ledger import Ledger
from master.metrics import MasterMetrics
from master.service import MasterService
from master.startup import open_ledger
from runtime import clock
from tests.support.transports import accepted, ended

TOKEN = "token-of-a-job-of-tests"  # noqa: S105 - of a server that lives as long as a test
LIMIT_S = 60.0
"""Ends a hang: nothing that tests wait for takes this long."""


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
                self._now_s += min(real_s - self._read_s, _MOST_STEP_S)
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


_MOST_STEP_S = 0.3


class Served:
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
        self.clock = Clock()
        self._ledger = Ledger("digits", **limits)
        self._directory, self._fence = directory, fence
        self._heartbeat_s, self._drain_s = heartbeat_s, drain_s
        self.port = port
        self.service: MasterService
        self._stopped: asyncio.Event
        self._loop = asyncio.new_event_loop()
        self._kills = False
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="master", daemon=True)
        self._thread.start()
        assert self._ready.wait(LIMIT_S)
        if self._error is not None:
            self._thread.join()
            raise self._error

    def pass_s(self, seconds: float) -> None:
        """Advances its clock, which must be held; the rendezvous reads it at once."""
        self.clock.move(seconds)
        changed = self.service.long_polls._changed  # noqa: SLF001 - it may wait by the real clock
        self._loop.call_soon_threadsafe(changed.set)

    def stop(self) -> None:
        """Ends as on SIGTERM: with a last snapshot."""
        self._end(kills=False)

    def kill(self) -> None:
        """Ends as on SIGKILL: with nothing."""
        self._end(kills=True)

    def _end(self, *, kills: bool) -> None:
        if not self._thread.is_alive():
            return
        self._kills = kills
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised in the starting thread
            self._error = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._ready.set()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        durable_ledger = open_ledger(self._ledger, self._directory, self._fence)
        try:
            self.service = MasterService(durable_ledger, self._heartbeat_s, self.clock, self._fence)
            application = app.make(self.service, TOKEN, MasterMetrics())
            runner = web.AppRunner(
                application,
                access_log=None,
                shutdown_timeout=self._drain_s,
                handler_cancellation=True,
            )
            await runner.setup()
            await self.service.start()
            site = web.TCPSite(runner, "127.0.0.1", self.port)
            await site.start()
            self.port = runner.addresses[0][1]
            self._ready.set()
            await self._stopped.wait()
            await (self.service.halt() if self._kills else self.service.stop())
            await accepted()
            await site.stop()
            await runner.cleanup()
            await ended()
        finally:
            durable_ledger.close()
