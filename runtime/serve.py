"""HTTPS serving: gunicorn runs a Flask application in one worker process with a few threads.

One worker, because caches and counters live in it; gthread, because it keeps connections open and
requests the TLS context for each new one. The master restarts a worker that dies or hangs; if the
master dies, its worker is killed at once (`runtime.worker`). Who calls: `__main__.py` of extender,
webhook and reconciler.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from pydantic import Field

from runtime import tls
from runtime.logs import keys, one_line
from runtime.settings import Address, Settings, address
from runtime.worker import GunicornLog, Worker, end_with_parent

log = logging.getLogger(__name__)

_KEEPALIVE_S = 120
"""Above the 90 s after which the API server closes idle connections: it never uses a closed one."""
_GRACE_S = 10
_HANG_S = 30
_BACKLOG = 512


class ServeSettings(Settings):
    """Settings of every component that serves HTTPS."""

    listen: Address = "0.0.0.0:8443"
    """Address and port to serve on; port 0 selects a free one."""
    announce_file: Path | None = None
    """File to which the actual address is written once the server listens."""
    threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Requests answered concurrently."""
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 5.0
    """After SIGTERM, how long requests are still answered while readiness already fails."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 3 * 1024 * 1024
    """A body of this length gets 413; the API server's limit for objects is less than half."""
    tls_cert: Path | None = None
    """PEM file of the serving certificate; it may include the key."""
    tls_key: Path | None = None
    """PEM file of the key, if it is a separate file."""
    client_ca: Path | None = None
    """PEM file of a CA: callers (except probes) must then present a certificate of it."""


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
        build: Creates the service in the worker process. If it fails, the server exits.

    Raises:
        ServeError: the address or the certificate cannot be used.
    """
    certificates = _certificates(settings)
    _Application(settings, build, certificates, _bind(settings.listen)).run()


def _certificates(settings: ServeSettings) -> tls.Certificates | None:
    if settings.tls_cert is None:
        return None
    try:
        return tls.Certificates(settings.tls_cert, settings.tls_key, settings.client_ca)
    except (OSError, ValueError) as error:
        raise ServeError(
            f"--tls-cert {settings.tls_cert} cannot be used: {one_line(error)}"
        ) from error


def _bind(listen: str) -> socket.socket:
    host, port = address(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ServeError(
            f"cannot listen on {listen}: {error.strerror}; choose another --listen"
        ) from error


class _Application(BaseApplication):  # type: ignore[misc]  # gunicorn ships no types
    """The gunicorn application of one component."""

    def __init__(
        self,
        settings: ServeSettings,
        build: Callable[[], WebService],
        certificates: tls.Certificates | None,
        listener: socket.socket,
    ) -> None:
        self.settings = settings
        self.service: WebService | None = None
        self._build = build
        self._certificates = certificates
        self._descriptor = listener.detach()
        super().__init__()

    def load_config(self) -> None:
        """Sets every option that matters, so that changed defaults of gunicorn have no effect."""
        for name, value in self._options().items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """Builds the service, in the worker."""
        try:
            self.service = self._build()
        except Exception as error:
            # The master exits too if a worker cannot be built: log the reason once.
            log.critical("service cannot be built", exc_info=error)
            raise SystemExit(Arbiter.APP_LOAD_ERROR) from error
        return self.service.app

    def _options(self) -> dict[str, Any]:
        settings = self.settings
        options: dict[str, Any] = {
            "bind": [f"fd://{self._descriptor}"],
            "backlog": _BACKLOG,
            "worker_class": Worker,
            "workers": 1,  # each worker would have its own cache and counters
            "threads": settings.threads,
            "keepalive": _KEEPALIVE_S,
            "timeout": _HANG_S,
            "graceful_timeout": int(_GRACE_S + settings.drain_seconds),
            "control_socket_disable": True,  # unused, and needs a writable directory
            "http_protocols": "h1",
            "limit_request_line": 4094,
            "limit_request_fields": 64,
            "limit_request_field_size": 8190,
            "logger_class": GunicornLog,
            "loglevel": "warning",
            "proc_name": settings.component,
            "post_fork": _after_fork,
            "post_worker_init": self._start,
            "worker_exit": _stop,
        }
        if Path("/dev/shm").is_dir():  # noqa: S108 - the heartbeat file must never wait for a disk
            options["worker_tmp_dir"] = "/dev/shm"  # noqa: S108 - same
        if self._certificates is not None:
            current = self._certificates.current
            options["certfile"] = str(settings.tls_cert)
            options["ssl_context"] = lambda _conf, _default: current()
        return options

    def _start(self, worker: Worker) -> None:
        """Starts the service in a new worker, then writes the address."""
        if self.service is not None:
            self.service.start()
        host, port = worker.sockets[0].getsockname()[:2]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        log.info("listening", extra=keys(address=where, tls=self._certificates is not None))
        if self.settings.announce_file is not None:
            partial = self.settings.announce_file.with_suffix(f".{os.getpid()}")
            partial.write_text(f"{where}\n")
            partial.replace(self.settings.announce_file)


def _after_fork(_: Arbiter, worker: Worker) -> None:
    if not end_with_parent(worker.ppid):
        sys.exit(0)
    # The parent's handlers only queue signals: a signal must end a worker without its own handlers.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def _stop(_: Arbiter, worker: Worker) -> None:
    service: WebService | None = worker.app.service
    if service is not None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        service.stop()
        log.info("stopped")
