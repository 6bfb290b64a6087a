"""The page's server in this process, on a synthetic cluster that the test changes."""

import time
from http import HTTPStatus

from bench.page_cluster import LiveCluster
from page.service import assemble
from page.settings import PageSettings
from runtime import clock, listener
from runtime.connection import Bounds
from runtime.http_server import HttpServer, Service
from runtime.serve import WebService

_START_S = 300.0
_POLL_S = 0.05
_BOUNDS = Bounds(
    max_connections=64,
    max_per_address=64,
    handshake_s=10.0,
    head_s=10.0,
    body_s=10.0,
    answer_s=30.0,
    idle_s=120.0,
)


_SETTINGS = PageSettings(listen="127.0.0.1:0", probe_listen=None, access_seconds=0.0)


class PageSite:
    """A server that may end and come back at the same address.

    Attributes:
        cluster: What it shows.
    """

    def __init__(self, cluster: LiveCluster, service: WebService) -> None:
        """Serves nothing yet."""
        self.cluster = cluster
        self._service = service
        self._port = 0
        self._server: HttpServer | None = None

    @classmethod
    def of(cls, nodes: int, settings: PageSettings = _SETTINGS) -> "PageSite":
        """That of a new cluster, with a fifth as many jobs."""
        cluster = LiveCluster(nodes, clock.epoch_s)
        return cls(cluster, assemble(settings, cluster, cluster.with_token))

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://127.0.0.1:{self._port}/"

    def start(self) -> None:
        """Reads the cluster, and serves."""
        self.begin()
        end_s = clock.monotonic_s() + _START_S
        client = self._service.app.test_client()
        head = {"Authorization": "Bearer admin"}
        while client.get("/api/v1/me", headers=head).status_code != HTTPStatus.OK:
            if clock.monotonic_s() > end_s:
                raise TimeoutError("the page has not read its cluster")
            time.sleep(_POLL_S)
        self.open()

    def begin(self) -> None:
        """Reads the cluster from now on."""
        self._service.start()

    def stop(self) -> None:
        """Ends all."""
        self.close()
        self._service.stop()

    def open(self) -> None:
        """Serves, at the address where it did before."""
        bound = listener.bind(f"127.0.0.1:{self._port}")
        app = self._service.app
        app.draining = False
        service = Service(app, None, 8, 16 * 1024)
        self._server = HttpServer(service, bound, _BOUNDS, certificates=None, failed=lambda: None)
        self._server.start()
        self._port = int(self._server.address.rpartition(":")[2])

    def close(self) -> None:
        """Ends all connections, as on SIGTERM; callers find nobody."""
        if self._server is not None:
            self._service.app.draining = True
            self._server.stop(0.0)
            self._server = None
