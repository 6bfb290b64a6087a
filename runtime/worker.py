"""gunicorn's threaded worker with socket timeouts, a drain before the stop, and no orphans.

Who calls: `runtime.serve`. It fixes three problems of gunicorn 27: a peer that stalls in the middle
of a request blocks one of few threads for ever; SIGTERM stops accepting at once, while the API
server still uses this address; a worker outlives a killed master by seconds.
"""

import ctypes
import os
import selectors
import signal
import ssl
import sys
from functools import partial
from types import FrameType
from typing import Any

from gunicorn.glogging import Logger
from gunicorn.workers.gthread import _DEFER, TConn, ThreadWorker

from runtime.clock import monotonic_s
from runtime.tls import IO_TIMEOUT_S, TimedSocket
from runtime.web import DRAINING

_PR_SET_PDEATHSIG = 1
_MOMENT_S = 0.005
"""The first request mostly arrives with the end of the handshake, or one network delay later."""


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn ships no types
    """A worker process with a few threads."""

    _drained_at: float | None = None

    def enqueue_req(self, conn: TConn) -> None:
        """Passes a connection to a thread; a new connection only after its first byte.

        gunicorn lets a silent new connection block a thread for five seconds; here the main loop
        waits for its first byte, and closes the connection if none arrives.
        """
        if conn.initialized or conn.data_ready:
            super().enqueue_req(conn)
            return
        conn.sock = TimedSocket(fileno=conn.sock.detach())
        conn.sock.setblocking(False)
        conn.timeout = monotonic_s() + IO_TIMEOUT_S
        self.pending_conns.append(conn)
        ready = partial(self.on_pending_socket_readable, conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, ready)

    def handle(self, conn: TConn) -> object:
        """Serves a connection; releases the thread if no request follows the TLS handshake.

        Go opens connections in advance: after the handshake it may send its request on another
        one. Waiting for such a connection would block one of four threads for seconds.
        """
        if not conn.initialized and conn.data_ready and self.cfg.is_ssl:
            try:
                conn.sock.setblocking(True)
                conn.init()
                if not _has_request(conn.sock):
                    conn.data_ready = False
                    return _DEFER
            except (OSError, ValueError):  # the peer disconnected, or does not use TLS
                return False
        return super().handle(conn)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles SIGTERM: readiness fails from now on; accepting ends after the drain."""
        wsgi = getattr(self, "wsgi", None)
        if wsgi is None or self._drained_at is not None:
            super().handle_exit(sig, frame)
            return
        wsgi.config[DRAINING] = True
        self._drained_at = monotonic_s() + self.app.settings.drain_seconds
        self.notify()

    def notify(self) -> None:
        """Sends the heartbeat and ends a drain; the main loop calls it at least every second."""
        super().notify()
        if self._drained_at is not None and self.alive and monotonic_s() >= self._drained_at:
            super().handle_exit(signal.SIGTERM, None)


def _has_request(connection: ssl.SSLSocket) -> bool:
    """Whether data has arrived after the handshake, or arrives within 5 ms."""
    if connection.pending():
        return True
    with selectors.DefaultSelector() as waiting:
        waiting.register(connection, selectors.EVENT_READ)
        return bool(waiting.select(_MOMENT_S))


class GunicornLog(Logger):  # type: ignore[misc]  # gunicorn ships no types
    """A logger that passes gunicorn's warnings and errors to the root logger; no access log."""

    def setup(self, cfg: Any) -> None:
        """Propagates records to the root logger."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True

    def exception(self, msg: str, *args: object, **kwargs: Any) -> None:
        """Logs socket errors at debug level; other errors keep their level and trace."""
        if isinstance(sys.exc_info()[1], OSError):
            self.error_log.debug(msg, *args)
        else:
            super().exception(msg, *args, **kwargs)


def end_with_parent(parent: int) -> bool:
    """Asks the kernel to kill this process when `parent` ends; False if it ended already.

    Without prctl (not Linux), gunicorn's own check of the parent notices it after a few seconds.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent
