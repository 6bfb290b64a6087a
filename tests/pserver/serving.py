"""Parameter servers in threads of this process, which can be killed as processes can."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from edl.local.ports import free_ports

from pserver import app
from pserver.metrics import PserverMetrics
from pserver.server import ParameterServer, ServerIdentity
from pserver.service import ParameterService
from pserver.startup import create_server, open_store
from pserver.store import CheckpointStore
from runtime import clock
from tests.sdk.master_server import TOKEN
from tests.support.transports import accepted, ended

_START_S = 25.0
"""Ends a hang: less than the time-out of a test."""
MOST_BYTES = 256 << 20


class RunningServer:
    """A server that runs until `stop` or `kill`; `start` restarts it at the same port."""

    def __init__(
        self,
        directory: Path,
        index: int = 0,
        of: int = 1,
        *,
        job: str = "digits",
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._directory, self._place, self._most_bytes = (
            directory,
            ServerIdentity(job, index, of),
            most_bytes,
        )
        (self.port,) = free_ports(1)
        self.server: ParameterServer
        self.clock_s: Callable[[], float] = clock.monotonic_s
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread
        self.start()

    @property
    def url(self) -> str:
        """As in EDL_PARAMETER_SERVERS."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it serves."""
        self._loop = asyncio.new_event_loop()
        self._ready, self._kills = threading.Event(), False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pserver", daemon=True)
        self._thread.start()
        assert self._ready.wait(_START_S)
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Ends like SIGTERM: writes a shutdown checkpoint."""
        self._end(kills=False)

    def kill(self) -> None:
        """Ends like SIGKILL: without a checkpoint."""
        self._end(kills=True)

    def _end(self, *, kills: bool) -> None:
        if not self._thread.is_alive():
            return
        self._kills = kills
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(_START_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - reported to the thread that called start
            self._error = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._ready.set()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        store = open_store(self._directory, self._place)
        try:
            await self._served(store)
        finally:
            store.close()

    async def _served(self, store: CheckpointStore) -> None:
        self.server = create_server(store, self._place, self._most_bytes, self.clock_s())
        service = ParameterService(self.server, store, self.clock_s)
        application = app.make(service, TOKEN, PserverMetrics())
        runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self._ready.set()
        await self._stopped.wait()
        if self._kills:
            service.halt()
        else:
            await service.stop()
        await accepted()
        await site.stop()
        await runner.cleanup()
        await ended()


class RunningServers:
    """All servers of a job, with a shared folder."""

    def __init__(self, directory: Path, number: int, **options: Any) -> None:
        self.directory = directory
        self.all = [RunningServer(directory, index, number, **options) for index in range(number)]

    @property
    def urls(self) -> tuple[str, ...]:
        """As in EDL_PARAMETER_SERVERS."""
        return tuple(server.url for server in self.all)

    def kill(self) -> None:
        """All at once."""
        for server in self.all:
            server.kill()

    def start(self) -> None:
        """All again, at their ports."""
        for server in self.all:
            server.start()

    def stop(self) -> None:
        """All end."""
        for server in self.all:
            server.stop()


def environment(**variables: str) -> dict[str, str]:
    """An environment without this process's EDL variables."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return {**inherited, **variables}
