"""Serving of a component: its API with TLS, and its probes and metrics on a port of their own.

gunicorn supervises, `runtime.http_server` serves: the arbiter binds the sockets and forks one worker,
because caches and counters live in it. The worker has a thread per port and a few for answers. One
that ends or hangs is replaced (`runtime.worker`); callers that connect meanwhile wait in the sockets'
queues. Who calls: `__main__.py` of extender, webhook and reconciler.
"""

import gc
import logging
import math
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any

from flask import Flask
from gunicorn.app.base import BaseApplication
from pydantic import Field

from runtime import listener, tls, web
from runtime.clock import monotonic_s
from runtime.http_server import HttpServer, Service
from runtime.listener import Bounds
from runtime.logs import keys, one_line
from runtime.settings import Address, Settings
from runtime.web import Port
from runtime.worker import GunicornLog, ServingArbiter, ServingWorker, after_fork

log = logging.getLogger(__name__)

_IDLE_S = 120.0
"""Above the 90 s after which the API server closes idle connections: it never uses a closed one."""
_GRACE_S = 10.0
_LATE_S = 10.0
"""A worker whose threads do not end is killed this long after the grace period."""
_HEARTBEAT_S = 15
"""A worker is replaced this long after its last heartbeat; a stuck one sends none. With the 30 s
after which it counts as stuck (`http_server.STUCK_S`), before a kubelet's third failed probe."""
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

    app: Flask
    start: Callable[[], None] = lambda: None
    """Starts watches and other threads; called once before the first request."""
    stop: Callable[[], None] = lambda: None
    """Stops them; called once after the last request."""


class ServeError(RuntimeError):
    """The server cannot start; the text is one line that names the setting."""


def run(settings: ServeSettings, build: Callable[[], WebService]) -> None:
    """Serves until SIGTERM or SIGINT, then exits the process (0 after a clean stop).

    Args:
        settings: The serving settings.
        build: Creates the service, in the worker process. If it fails, the server exits with 1.

    Raises:
        ServeError: an address or the certificate cannot be used.
        SystemExit: always else.
    """
    certificates = _certificates(settings)
    gc.freeze()  # what is imported stays: no look at it later, nor as arbiter and worker end
    _Application(settings, build, certificates, _bind(settings)).run()


class _Application(BaseApplication):  # type: ignore[misc]  # gunicorn ships no types
    """The gunicorn application of one component."""

    def __init__(
        self,
        settings: ServeSettings,
        build: Callable[[], WebService],
        certificates: tls.Certificates | None,
        sockets: dict[Port | None, socket.socket],
    ) -> None:
        self._settings, self._build, self._certificates = settings, build, certificates
        self._ports = list(sockets)
        self._descriptors = [bound.detach() for bound in sockets.values()]
        super().__init__()

    def load_config(self) -> None:
        """Sets every option that matters, so that changed defaults of gunicorn have no effect."""
        for name, value in self._options().items():
            self.cfg.set(name, value)

    def load(self) -> "_Serving":
        """Builds the service, in the worker."""
        try:
            service = self._build()
        except Exception as error:
            # The arbiter exits too if a worker cannot be built: log the reason once.
            log.critical("service cannot be built", exc_info=error)
            raise SystemExit(ServingArbiter.APP_LOAD_ERROR) from error
        return _Serving(self._settings, service, self._certificates, self._ports)

    def run(self) -> None:
        """Runs the arbiter."""
        ServingArbiter(self).run()

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "bind": [f"fd://{descriptor}" for descriptor in self._descriptors],
            "backlog": listener.BACKLOG,
            "worker_class": ServingWorker,
            "workers": 1,  # each worker would have its own cache and counters
            "timeout": _HEARTBEAT_S,
            "graceful_timeout": math.ceil(self._settings.drain_seconds + _GRACE_S + _LATE_S),
            "control_socket_disable": True,  # unused, and needs a writable directory
            "logger_class": GunicornLog,
            "loglevel": "warning",
            "proc_name": self._settings.component,
            "post_fork": after_fork,
            "child_exit": lambda arbiter, _worker: arbiter.note_end(),
        }
        if Path("/dev/shm").is_dir():  # noqa: S108 - the heartbeat file must never wait for a disk
            options["worker_tmp_dir"] = "/dev/shm"  # noqa: S108 - same
        return options


class _Serving:
    """The servers of a service, in the worker process.

    Args:
        settings: The serving settings.
        service: What they serve.
        certificates: TLS of the API; None for plain HTTP.
        ports: What each socket serves.
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
        """Whether a server has ended by an error."""
        return self._failed.is_set()

    def start(self, sockets: list[socket.socket]) -> None:
        """Starts service and servers, then announces the addresses.

        Raises:
            RuntimeError: a server has not started.
        """
        self._servers += starmap(self._server, zip(self._ports, sockets, strict=True))
        self._service.app.extensions[web.STUCK] = partial(_stuck, self._servers)
        self._service.start()
        for server in self._servers:
            server.start()
        if self.failed:
            raise RuntimeError("a server has not started")
        _announce(self._settings, self._servers)

    def drain(self) -> None:
        """Makes readiness fail, and ends connections with their next answer."""
        self._service.app.config[web.DRAINING] = True
        for server in self._servers:
            server.drain()

    def stop(self) -> None:
        """Answers the last requests, then stops the service; the arbiter ends it if that hangs."""
        for server in self._servers:
            server.stop(_GRACE_S)
        self._service.stop()
        log.info("stopped")
        sys.stderr.flush()

    def stuck(self) -> str:
        """Why the process must be replaced, "" if it need not."""
        return web.stuck(self._service.app)

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
            self._service.app.extensions[web.DROPS],
            certificates=None if port is Port.APART else self._certificates,
            failed=self._failed.set,
        )


def _certificates(settings: ServeSettings) -> tls.Certificates | None:
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


def _bind(settings: ServeSettings) -> dict[Port | None, socket.socket]:
    """The bound sockets by what they serve."""
    if settings.probe_listen is None:
        return {None: _bound(settings.listen, Port.API)}
    return {
        Port.API: _bound(settings.listen, Port.API),
        Port.APART: _bound(settings.probe_listen, Port.APART),
    }


def _bound(listen: str, port: Port) -> socket.socket:
    try:
        return listener.bind(listen)
    except OSError as error:
        raise ServeError(
            f"cannot listen on {listen}: {error.strerror}; choose another {port}"
        ) from error


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


def _stuck(servers: list[HttpServer]) -> str:
    now_s = monotonic_s()
    return next((reason for server in servers if (reason := server.stuck(now_s))), "")


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
