"""gunicorn's worker process for `runtime.serve`: a heartbeat, a drain before the stop, no orphans.

Who calls: gunicorn's arbiter, which forks one such worker and replaces it when it ends, or when its
heartbeat stops. The worker's main thread only watches; requests are served by other threads.
"""

import ctypes
import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from types import FrameType
from typing import Any, Protocol

from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger
from gunicorn.sock import BaseSocket
from gunicorn.workers.base import Worker

from runtime.clock import monotonic_s
from runtime.logs import keys

log = logging.getLogger(__name__)

_LOOK_S = 0.1
_MAX_ENDS = 3
"""Replacements within `_ENDS_S`; after one more end the kubelet restarts the pod, with back-off."""
_ENDS_S = 600.0
_PR_SET_PDEATHSIG = 1


class Serving(Protocol):
    """The service that a worker runs, once it is built."""

    drain_seconds: float

    @property
    def failed(self) -> bool:
        """Whether a server has ended by an error."""
        ...

    def start(self, sockets: list[socket.socket]) -> None:
        """Starts service and servers.

        Raises:
            RuntimeError: a server has not started.
        """
        ...

    def drain(self) -> None:
        """Makes readiness fail, and ends connections with their next answer."""
        ...

    def stop(self) -> None:
        """Answers the last requests, then stops the service."""
        ...

    def stuck(self) -> str:
        """Why the process must be replaced, "" if it need not."""
        ...


class ServingWorker(Worker):  # type: ignore[misc]  # gunicorn ships no types
    """The worker; its application builds a `Serving`."""

    alive: bool
    """False after SIGINT and SIGQUIT: stop without a drain."""
    sockets: list[BaseSocket]
    wsgi: Serving
    _terminated = False
    _stuck = ""

    def init_signals(self) -> None:
        """Sets defaults: a signal ends a build at once. `load_wsgi` then sets the handlers."""
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def load_wsgi(self) -> None:
        """Builds and starts what is served; the arbiter exits, too, if that fails."""
        super().load_wsgi()
        super().init_signals()
        try:
            self.wsgi.start([listening.sock for listening in self.sockets])
        except Exception as error:
            log.critical("service cannot be started", exc_info=error)
            raise SystemExit(Arbiter.APP_LOAD_ERROR) from error

    def run(self) -> None:
        """Sends heartbeats until a signal; after SIGTERM, serves on for the drain."""
        self.notify()  # one in any case: the arbiter misses no heartbeat of a worker before its first
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

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as its base
        """Handles SIGTERM."""
        self._terminated = True

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as its base
        """Handles SIGINT and SIGQUIT."""
        self.alive = False

    def handle_abort(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as its base
        """Handles SIGABRT, by which the arbiter ends a stuck worker: waits for no thread."""
        os._exit(1)

    def _serves(self) -> bool:
        return self.alive and not self.wsgi.failed

    def _beat(self) -> None:
        """Tells the arbiter that the process works, unless it is stuck; then waits for 0.1 s."""
        reason = self.wsgi.stuck()
        if not reason:
            self.notify()
        elif not self._stuck:
            log.critical("stuck", extra=keys(reason=reason))
        self._stuck = reason
        time.sleep(_LOOK_S)


class ServingArbiter(Arbiter):  # type: ignore[misc]  # gunicorn ships no types
    """An arbiter that gives up a worker that ends again and again, and exits with 0 or 1."""

    LISTENERS: list[BaseSocket]

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self._ends_s: deque[float] = deque(maxlen=_MAX_ENDS + 1)
        """When workers have ended."""

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """Ends worker and process."""
        super().halt(reason, min(exit_status, 1))

    def note_end(self) -> None:
        """Notes that a worker has ended.

        Raises:
            HaltServer: too many have, though nobody stops the server.
        """
        if not self.LISTENERS:  # it is being stopped
            return
        self._ends_s.append(monotonic_s())
        if len(self._ends_s) > _MAX_ENDS and self._ends_s[-1] - self._ends_s[0] < _ENDS_S:
            raise HaltServer(f"{len(self._ends_s)} workers have ended within {_ENDS_S:.0f} s", 1)


class GunicornLog(Logger):  # type: ignore[misc]  # gunicorn ships no types
    """A logger that passes gunicorn's warnings and errors to the root logger; no access log."""

    def setup(self, cfg: Any) -> None:
        """Propagates records to the root logger."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


def after_fork(_: Arbiter, worker: Worker) -> None:
    """Prepares a new worker: it ends with its arbiter, and by signals at once."""
    if not _end_with_parent(worker.ppid):
        sys.exit(0)
    # The parent's handlers only queue signals: a signal must end a worker without its own handlers.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def _end_with_parent(parent: int) -> bool:
    """Asks the kernel to kill this process when `parent` ends; False if it ended already.

    There is no other check of the parent: without prctl (not Linux) a worker outlives it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent
