"""Serves a component: its API with TLS, and its probes and metrics on a separate port.

`runtime.supervisor` runs this in a worker process of gunicorn, which has a thread for each port and a few
threads for answers.
"""

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Annotated

from pydantic import Field

from runtime import listener, tls
from runtime.clock import monotonic_s
from runtime.connection import Bounds
from runtime.http_server import HttpServer, Service
from runtime.logs import keys, one_line
from runtime.settings import Address, Settings
from runtime.web import Port, WebApp

log = logging.getLogger(__name__)

GRACE_S = 10.0
"""Requests in progress may take this long when the server stops."""
_IDLE_S = 120.0
"""Longer than the 90 s after which the API server closes idle connections, so that it never uses a
closed one."""
_APART_THREADS = 1


class ServeSettings(Settings):
    """Settings of every component that serves HTTPS."""

    listen: Address = ":8443"
    """Address and port to serve on; port 0 selects a free one."""
    probe_listen: Address | None = ":8080"
    """Address and port of probes and metrics, without TLS; none serves them at --listen."""
    announce_file: Path | None = None
    """File to write the actual addresses to once the server listens, one per line."""
    threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Requests answered concurrently."""
    request_seconds: Annotated[float, Field(gt=0, le=60)] = 5.0
    """Time limit for each of a TLS handshake, a request's head, its body, and reading the answer."""
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 5.0
    """How long requests are still answered after SIGTERM, while readiness fails."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 3 * 1024 * 1024
    """Bodies of this length or longer get 413. The API server's limit for objects is less than half."""
    max_connections: Annotated[int, Field(ge=1, le=65_536)] = 256
    """Open connections; a new one then takes the place of one that waits for its caller.

    A silent one with TLS costs up to 0.4 MiB, of the 256 MiB of a webhook.
    """
    max_connections_per_address: Annotated[int, Field(ge=1, le=65_536)] = 128
    """Largest number of open connections of one address."""
    tls_cert: Path | None = None
    """PEM file of the serving certificate; it may include the key."""
    tls_key: Path | None = None
    """PEM file of the key, if it is a separate file."""
    client_ca: Path | None = None
    """PEM file of a CA. If set, callers need a certificate of this CA."""


@dataclass(frozen=True, slots=True)
class WebService:
    """A Flask application with its start and stop; built after the fork, so it may use threads."""

    app: WebApp
    start: Callable[[], None] = lambda: None
    """Starts watches and other threads; called once before the first request."""
    stop: Callable[[], None] = lambda: None
    """Stops them; called once after the last request."""


class ServeError(RuntimeError):
    """The server cannot start; the text is one line that names the setting."""


class Serving:
    """The servers of a service, in the worker process.

    Args:
        settings: The serving settings.
        service: What they serve.
        certificates: TLS of the API; None for plain HTTP.
        ports: The port of each socket that `start` gets.
    """

    def __init__(
        self,
        settings: ServeSettings,
        service: WebService,
        certificates: tls.Certificates | None,
        ports: list[Port | None],
    ) -> None:
        self.drain_seconds = settings.drain_seconds
        self._settings, self._service = settings, service
        self._certificates, self._ports = certificates, ports
        self._servers: list[HttpServer] = []
        self._failed = threading.Event()

    @property
    def failed(self) -> bool:
        """Returns whether a server has ended with an error."""
        return self._failed.is_set()

    def start(self, sockets: list[socket.socket]) -> None:
        """Starts service and servers, then announces the addresses.

        Args:
            sockets: A listening socket for each port.

        Raises:
            RuntimeError: a server has not started.
        """
        self._servers += starmap(self._server, zip(self._ports, sockets, strict=True))
        self._service.app.stuck_servers = self._stuck_servers
        self._service.start()
        for server in self._servers:
            server.start()
        if self.failed:
            raise RuntimeError("a server has not started")
        _announce(self._settings, self._servers)

    def drain(self) -> None:
        """Makes readiness fail, and closes connections after their next answer."""
        self._service.app.draining = True
        for server in self._servers:
            server.drain()

    def stop(self) -> None:
        """Answers the last requests, then stops the service; if that hangs, the arbiter kills the worker."""
        for server in self._servers:
            server.stop(GRACE_S)
        self._service.stop()
        log.info("stopped")
        sys.stderr.flush()

    def stuck(self) -> str:
        """Returns why the process must be replaced, or ""."""
        return self._service.app.stuck()

    def _stuck_servers(self) -> str:
        now_s = monotonic_s()
        reasons = (server.stuck(now_s) for server in self._servers)
        return next(filter(None, reasons), "")

    def _server(self, port: Port | None, bound: socket.socket) -> HttpServer:
        return HttpServer(
            Service(
                self._service.app,
                port,
                _APART_THREADS if port is Port.APART else self._settings.threads,
                self._settings.max_body_bytes,
            ),
            bound,
            _bounds(self._settings),
            certificates=None if port is Port.APART else self._certificates,
            failed=self._failed.set,
        )


def certificates(settings: ServeSettings) -> tls.Certificates | None:
    """Returns the certificates of the API; None for plain HTTP.

    Raises:
        ServeError: the certificate cannot be used, or another setting is missing.
    """
    if settings.client_ca is not None and settings.tls_cert is None:
        raise ServeError("--client-ca needs --tls-cert: without TLS no caller has a certificate")
    if settings.client_ca is not None and settings.probe_listen is None:
        raise ServeError("--client-ca needs --probe-listen: a kubelet has no certificate")
    if settings.tls_cert is None:
        return None
    try:
        return tls.Certificates(settings.tls_cert, settings.tls_key, settings.client_ca)
    except (OSError, ValueError) as error:
        raise ServeError(
            f"--tls-cert {settings.tls_cert} cannot be used: {one_line(error)}"
        ) from error


def bind(settings: ServeSettings) -> dict[Port | None, socket.socket]:
    """Returns a listening socket for each port; the key None serves all routes.

    Raises:
        ServeError: an address cannot be used.
    """
    try:
        if settings.probe_listen is None:
            return {None: listener.bind(settings.listen, Port.API)}
        return {
            Port.API: listener.bind(settings.listen, Port.API),
            Port.APART: listener.bind(settings.probe_listen, Port.APART),
        }
    except OSError as error:
        raise ServeError(str(error)) from error


def _bounds(settings: ServeSettings) -> Bounds:
    request_s = settings.request_seconds
    return Bounds(
        max_connections=settings.max_connections,
        max_per_address=settings.max_connections_per_address,
        handshake_s=request_s,
        head_s=request_s,
        body_s=request_s,
        answer_s=request_s,
        idle_s=_IDLE_S,
    )


def _announce(settings: ServeSettings, servers: list[HttpServer]) -> None:
    addresses = [server.address for server in servers]
    log.info(
        "listening",
        extra=keys(address=addresses[0], probes=addresses[-1], tls=settings.tls_cert is not None),
    )
    if settings.announce_file is not None:
        partial_file = settings.announce_file.with_suffix(f".{os.getpid()}")
        partial_file.write_text("".join(f"{address}\n" for address in addresses))
        partial_file.replace(settings.announce_file)
