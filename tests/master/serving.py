"""A master in a thread of its own, which can be killed as a process can."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from aiohttp import web

from master import app
from master.fence import Fence
from master.ledger import Ledger
from master.measures import Measures
from master.opening import books_of
from master.service import Service
from runtime import clock
from tests.support.transports import accepted, ended

TOKEN = "token-of-a-job-of-tests"  # noqa: S105 - of a server that lives as long as a test
LIMIT_S = 60.0
"""Ends a hang: nothing that is waited for takes so long."""


class Clock:
    """A master's, as tests need it: a machine that stands still for seconds ends no patience.

    It is the real one, but for time in which nobody could read it; or it is held, and time passes
    by hand.
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
        """No time passes from now on, but by `move`."""
        self()
        self._held = True

    def go_on(self) -> None:
        """Time passes again."""
        self()
        self._held = False

    def move(self, seconds: float) -> None:
        """So much time has passed."""
        with self._lock:
            self._now_s += seconds


_MOST_STEP_S = 0.3


class Served:
    """Serves from its making until `stop` or `kill`."""

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
            directory: Of the journal.
            port: Where; 0 takes a free one.
            fence: Where snapshots go.
            heartbeat_s: How often trainers are to be heard.
            drain_s: How long its end waits for calls that it has not answered.
            limits: Of the ledger.
        """
        self.clock = Clock()
        self._ledger = Ledger("digits", **limits)
        self._directory, self._fence = directory, fence
        self._heartbeat_s, self._drain_s = heartbeat_s, drain_s
        self.port = port
        self.service: Service
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
        """So much time passes by its clock, which is held; the rendezvous sees it at once."""
        self.clock.move(seconds)
        changed = self.service.meetings._changed  # noqa: SLF001 - it may wait by the real clock
        self._loop.call_soon_threadsafe(changed.set)

    def stop(self) -> None:
        """Ends as SIGTERM does: with a last snapshot."""
        self._end(kills=False)

    def kill(self) -> None:
        """Ends as SIGKILL does: with nothing."""
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
        except BaseException as error:  # noqa: BLE001 - told to whoever started this thread
            self._error = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._ready.set()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        books = books_of(self._ledger, self._directory, self._fence)
        try:
            self.service = Service(books, self._heartbeat_s, self.clock, self._fence)
            application = app.make(self.service, TOKEN, Measures())
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
            books.close()
