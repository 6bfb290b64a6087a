"""Runs a component under gunicorn: a worker process that ends or hangs is replaced.

gunicorn's arbiter binds the sockets and forks one worker, because caches and counters live in it. The
worker's main thread only sends heartbeats; other threads serve (`runtime.serve`). Callers that connect while
a worker is being replaced wait in the sockets' queues. Who calls: `__main__.py` of webhook, extender,
reconciler and page.
"""

import ctypes
import gc
import logging
import math
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger
from gunicorn.sock import BaseSocket
from gunicorn.workers.base import Worker
from typing_extensions import override

from runtime import serve, tls
from runtime.clock import monotonic_s
from runtime.listener import BACKLOG
from runtime.logs import keys
from runtime.serve import ServeSettings, Serving, WebService
from runtime.web import Port

log = logging.getLogger(__name__)

_HEARTBEAT_S = 15
"""A worker is replaced this long after its last heartbeat. A worker counts as stuck after
`http_server.STUCK_S`. The sum of both is less than the time until a kubelet's third failed
probe."""
_KILL_S = 10.0
"""A worker whose threads do not end is killed this long after the grace period."""
_LOOK_S = 0.1
_MAX_ENDS = 3
"""Maximum number of replacements within `_ENDS_S`; if the worker ends once more, the kubelet
restarts the pod, with back-off."""
_ENDS_S = 600.0
_PR_SET_PDEATHSIG = 1


def run(settings: ServeSettings, build: Callable[[], WebService]) -> None:
    """Serves until SIGTERM or SIGINT, then exits the process (0 after a clean stop).

    Args:
        settings: The serving settings.
        build: Creates the service, in the worker process. If it fails, the server exits with 1.

    Raises:
        ServeError: an address or the certificate cannot be used.
        SystemExit: in all other cases.
    """
    certificates = serve.certificates(settings)
    gc.freeze()  # imported modules stay: the garbage collector need not look at them
    _Application(settings, build, certificates, serve.bind(settings)).run()


def exit_on_signals() -> None:
    """Makes SIGTERM and SIGINT raise SystemExit(0) until `run`, which sets other handlers.

    Process 1 of a container ignores signals without a handler.
    """

    def exit_cleanly(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, exit_cleanly)


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

    @override
    def load_config(self) -> None:
        """Sets every option that matters, so that changed defaults of gunicorn have no effect."""
        options: dict[str, Any] = {
            "bind": [f"fd://{descriptor}" for descriptor in self._descriptors],
            "backlog": BACKLOG,
            "worker_class": _ServingWorker,
            "workers": 1,  # each worker would have its own cache and counters
            "timeout": _HEARTBEAT_S,
            "graceful_timeout": math.ceil(self._settings.drain_seconds + serve.GRACE_S + _KILL_S),
            "control_socket_disable": True,  # unused, and needs a writable directory
            "logger_class": _GunicornLog,
            "loglevel": "warning",
            "proc_name": self._settings.component,
            "post_fork": _after_fork,
            "child_exit": lambda arbiter, _worker: arbiter.note_end(),
        }
        if Path("/dev/shm").is_dir():  # noqa: S108 - the heartbeat file must never wait for a disk
            options["worker_tmp_dir"] = "/dev/shm"  # noqa: S108 - same
        for name, value in options.items():
            self.cfg.set(name, value)

    @override
    def load(self) -> Serving:
        """Builds the service, in the worker."""
        try:
            service = self._build()
        except Exception as error:
            # The arbiter exits too if a worker cannot be built: log the reason once.
            log.critical("service cannot be built", exc_info=error)
            raise SystemExit(Arbiter.APP_LOAD_ERROR) from error
        return Serving(self._settings, service, self._certificates, self._ports)

    @override
    def run(self) -> None:
        _ServingArbiter(self).run()


class _ServingWorker(Worker):  # type: ignore[misc]  # gunicorn ships no types
    """The worker process; its application builds a `Serving`."""

    alive: bool
    """False after SIGINT and SIGQUIT: the worker stops without a drain."""
    sockets: list[BaseSocket]
    wsgi: Serving
    _terminated = False
    _stuck = ""

    @override
    def init_signals(self) -> None:
        """Restores the default handlers, so that a signal ends a build at once.

        `load_wsgi` sets gunicorn's handlers.
        """
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    @override
    def load_wsgi(self) -> None:
        """Builds and starts the service; if that fails, the arbiter exits too."""
        super().load_wsgi()
        super().init_signals()
        try:
            self.wsgi.start([listening.sock for listening in self.sockets])
        except Exception as error:
            log.critical("service cannot be started", exc_info=error)
            raise SystemExit(Arbiter.APP_LOAD_ERROR) from error

    @override
    def run(self) -> None:
        """Sends heartbeats until a signal; after SIGTERM, serves on for the drain."""
        self.notify()  # unconditionally: the arbiter ignores missing heartbeats before the first one
        while self._serves() and not self._terminated:
            self._beat()
        if self._serves():
            self.wsgi.drain()
            drained_s = monotonic_s() + self.wsgi.drain_seconds
            while self._serves() and monotonic_s() < drained_s:
                self._beat()
        self.wsgi.stop()
        if self.wsgi.failed:
            sys.exit(1)

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles SIGTERM."""
        self._terminated = True

    @override
    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """Handles SIGINT and SIGQUIT."""
        self.alive = False

    @override
    def handle_abort(self, sig: int, frame: FrameType | None) -> None:
        """Handles SIGABRT, which the arbiter sends to a stuck worker: exits without waiting for threads."""
        os._exit(1)

    def _serves(self) -> bool:
        return self.alive and not self.wsgi.failed

    def _beat(self) -> None:
        """Sends a heartbeat unless the process is stuck; then waits for 0.1 s."""
        reason = self.wsgi.stuck()
        if not reason:
            self.notify()
        elif not self._stuck:
            log.critical("stuck", extra=keys(reason=reason))
        self._stuck = reason
        time.sleep(_LOOK_S)


class _ServingArbiter(Arbiter):  # type: ignore[misc]  # gunicorn ships no types
    """An arbiter that exits if its worker ends again and again; its exit code is 0 or 1."""

    LISTENERS: list[BaseSocket]

    def __init__(self, app: _Application) -> None:
        super().__init__(app)
        self._ends_s: deque[float] = deque(maxlen=_MAX_ENDS + 1)
        """When workers have ended."""

    @override
    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """Ends worker and process."""
        super().halt(reason, min(exit_status, 1))

    def note_end(self) -> None:
        """Notes that a worker has ended.

        Raises:
            HaltServer: too many workers have ended, and the server is not being stopped.
        """
        if not self.LISTENERS:  # the server is being stopped
            return
        self._ends_s.append(monotonic_s())
        if len(self._ends_s) > _MAX_ENDS and self._ends_s[-1] - self._ends_s[0] < _ENDS_S:
            raise HaltServer(f"{len(self._ends_s)} workers have ended within {_ENDS_S:.0f} s", 1)


class _GunicornLog(Logger):  # type: ignore[misc]  # gunicorn ships no types
    """A logger that passes gunicorn's warnings and errors to the root logger; there is no access log."""

    @override
    def setup(self, cfg: Any) -> None:
        """Propagates records to the root logger."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


def _after_fork(_: Arbiter, worker: Worker) -> None:
    """Prepares a new worker: it ends with its arbiter, and a signal ends it at once.

    Without prctl (not Linux) a worker outlives a killed arbiter.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker.ppid:  # the arbiter has ended already
        sys.exit(0)
    # The arbiter's handlers only queue signals: restore the default ones until the worker sets its handlers.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
