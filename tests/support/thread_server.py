"""A server of one job in a thread of this process, which can be killed as a process can."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from aiohttp import web

from runtime.job_server import serving
from tests.reconciler.waiting import LIMIT_S
from tests.support.transports import accepted, ended


class ThreadServer(ABC):
    """A server that serves from `start` until `stop` or `kill`; then it may start again."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, port: int, drain_s: float = 0.1) -> None:
        """Starts nothing.

        Args:
            port: The port; 0 for a free one, which the server keeps.
            drain_s: How long its end waits for unanswered calls.
        """
        self.port = port
        self._drain_s = drain_s
        self._stopped: asyncio.Event
        self._thread: threading.Thread

    @property
    def url(self) -> str:
        """As trainers have it."""
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    async def run(self) -> None:
        """Opens what the server needs, and calls `serve`; on its thread."""

    def start(self) -> None:
        """Returns when it serves."""
        self.loop = asyncio.new_event_loop()
        self._ready, self._kills = threading.Event(), False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._thread.start()
        assert self._ready.wait(LIMIT_S)
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Ends as on SIGTERM."""
        self._end(kills=False)

    def kill(self) -> None:
        """Ends as on SIGKILL: nothing more is saved."""
        self._end(kills=True)

    async def serve(
        self,
        app: web.Application,
        stop: Callable[[], Awaitable[None]],
        halt: Callable[[], Awaitable[None]],
    ) -> None:
        """Serves until `stop` or `kill`.

        Args:
            app: The application.
            stop: Ends its service as on SIGTERM.
            halt: Ends its service as on SIGKILL.
        """
        self._stopped = asyncio.Event()

        async def end() -> None:
            await (halt() if self._kills else stop())
            await accepted()

        async with serving(app, f"127.0.0.1:{self.port}", end, self._drain_s) as (_, self.port):
            self._ready.set()
            await self._stopped.wait()
        await ended()

    def _end(self, *, kills: bool) -> None:
        if not self._thread.is_alive():
            return
        self._kills = kills
        self.loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self.run())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that called start
            self._error = error
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self._ready.set()
