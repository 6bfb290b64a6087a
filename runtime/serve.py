"""HTTPS serving: gunicorn with one worker process and a few threads around a Flask application.

One worker, because caches and counters live in it; gthread, because it keeps connections open
and asks for the TLS context anew for each one. The master restarts a worker that dies or
hangs; a worker whose master dies goes with it at once (`runtime.worker`). Who calls:
`__main__.py` of extender and webhook.
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
"""Above the 90 s after which the API server drops idle connections, so that it never meets a closed one."""
_GRACE_S = 10
_HANG_S = 30
_BACKLOG = 512


class ServeSettings(Settings):
    """What every serving room can be told."""

    listen: Address = "0.0.0.0:8443"
    """Address and port to serve on; port 0 takes a free one."""
    announce_file: Path | None = None
    """File that gets the address really served on, once it is."""
    threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Requests answered at one time."""
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 5.0
    """After SIGTERM, how long to go on answering while readiness already says no."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 3 * 1024 * 1024
    """A body of this length gets 413; the API server stores no object half as long."""
    tls_cert: Path | None = None
    """PEM file of the serving certificate; the key may be in it too."""
    tls_key: Path | None = None
    """PEM file of the key, where it is a file of its own."""
    client_ca: Path | None = None
    """PEM file of a CA: callers (not probes) must then show a certificate of it."""


@dataclass(frozen=True, slots=True)
class Service:
    """What a room serves: built in the worker, after the fork, so that threads may run."""

    app: Flask
    start: Callable[[], None] = lambda: None
    """Starts watches and other threads; called once, before the first request."""
    stop: Callable[[], None] = lambda: None
    """Ends them; called once, after the last request."""


class ServeError(RuntimeError):
    """The server cannot start; the text is one line that names the setting."""


def run(settings: ServeSettings, build: Callable[[], Service]) -> None:
    """Serves until SIGTERM or SIGINT, then exits the process (0 after a clean stop).

    Args:
        settings: Where and how.
        build: Makes the service in the worker process. An error there ends the server.

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
    """Tells gunicorn how to serve one room."""

    def __init__(
        self,
        settings: ServeSettings,
        build: Callable[[], Service],
        certificates: tls.Certificates | None,
        listener: socket.socket,
    ) -> None:
        self.settings = settings
        self.service: Service | None = None
        self._build = build
        self._certificates = certificates
        self._descriptor = listener.detach()
        super().__init__()

    def load_config(self) -> None:
        """Sets every option we depend on, so that a new default of gunicorn's changes nothing."""
        for name, value in self._options().items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """Builds the service, in the worker."""
        try:
            self.service = self._build()
        except Exception as error:
            # The master ends too when a worker cannot be built: the reason belongs in the log once.
            log.critical("service cannot be built", exc_info=error)
            raise SystemExit(Arbiter.APP_LOAD_ERROR) from error
        return self.service.app

    def _options(self) -> dict[str, Any]:
        settings = self.settings
        options: dict[str, Any] = {
            "bind": [f"fd://{self._descriptor}"],
            "backlog": _BACKLOG,
            "worker_class": Worker,
            "workers": 1,  # two would be two caches and two sets of counters
            "threads": settings.threads,
            "keepalive": _KEEPALIVE_S,
            "timeout": _HANG_S,
            "graceful_timeout": int(_GRACE_S + settings.drain_seconds),
            "control_socket_disable": True,  # wants a writable directory and serves nobody
            "http_protocols": "h1",
            "limit_request_line": 4094,
            "limit_request_fields": 64,
            "limit_request_field_size": 8190,
            "logger_class": GunicornLog,
            "loglevel": "warning",
            "proc_name": settings.room,
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
        """Starts the service, then says that it answers; in the worker, also in one that replaces another."""
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
    # Until the worker has handlers of its own, a stop must end it; its parent's would only take note.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def _stop(_: Arbiter, worker: Worker) -> None:
    service: Service | None = worker.app.service
    if service is not None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        service.stop()
        log.info("stopped")
