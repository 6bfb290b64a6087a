"""Parameter servers in threads of this process, which can be killed as processes can."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from edl.local.ports import free_ports

from pserver import app
from pserver.metrics import PserverMetrics
from pserver.server import ParameterServer, ServerIdentity
from pserver.service import ParameterService
from pserver.startup import create_server
from pserver.store import CheckpointStore
from runtime import clock
from tests.sdk.support.master_server import TOKEN
from tests.support.thread_server import ThreadServer

MAX_BYTES = 256 << 20


class RunningServer(ThreadServer):
    """A server that runs until `stop` or `kill`; `start` restarts it at the same port."""

    def __init__(
        self,
        directory: Path,
        index: int = 0,
        of: int = 1,
        *,
        job: str = "digits",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        super().__init__(*free_ports(1))
        self._directory, self._max_bytes = directory, max_bytes
        self._identity = ServerIdentity(job, index, of)
        self.server: ParameterServer
        self.clock_s: Callable[[], float] = clock.monotonic_s
        self.start()

    async def run(self) -> None:
        """See ThreadServer."""
        identity = self._identity
        store = CheckpointStore(self._directory, identity.job, identity.index, identity.of)
        with closing(store):
            self.server = create_server(store, self._identity, self._max_bytes, self.clock_s())
            service = ParameterService(self.server, store, self.clock_s)

            async def halt() -> None:
                service.halt()

            application = app.make(service, TOKEN, PserverMetrics())
            await self.serve(application, service.stop, halt)


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
