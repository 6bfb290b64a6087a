"""gunicorn's threaded worker, with timeouts on sockets, a drain before the stop, and no orphans.

Who calls: `runtime.serve`. What gunicorn 27 lacks for us: a peer that stops talking in the
middle holds one of few threads for ever; SIGTERM stops accepting at once, while the API server
still has our address; a worker outlives a killed master by seconds.
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
"""The first request mostly comes with the end of the handshake, or one way later."""


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn ships no types
    """One process, a few threads."""

    _drained_at: float | None = None

    def enqueue_req(self, conn: TConn) -> None:
        """Hands a connection to a thread; a new one only once it has said something.

        gunicorn lets a silent new connection hold a thread for five seconds; here the main loop
        waits for its first byte, and drops it if none comes.
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
        """Serves a connection; one that has shaken hands and says nothing yet frees its thread.

        Go opens connections ahead of need: it shakes hands, then perhaps sends the request on
        another one. A thread that waits for such a connection is lost for seconds, and four of
        them are all there are.
        """
        if not conn.initialized and conn.data_ready and self.cfg.is_ssl:
            try:
                conn.sock.setblocking(True)
                conn.init()
                if not _has_request(conn.sock):
                    conn.data_ready = False
                    return _DEFER
            except (OSError, ValueError):  # the peer left, or speaks no TLS
                return False
        return super().handle(conn)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM: readiness says no from now on; accepting ends when the drain is over."""
        wsgi = getattr(self, "wsgi", None)
        if wsgi is None or self._drained_at is not None:
            super().handle_exit(sig, frame)
            return
        wsgi.config[DRAINING] = True
        self._drained_at = monotonic_s() + self.app.settings.drain_seconds
        self.notify()

    def notify(self) -> None:
        """Called by the main loop at least every second: the heartbeat, and the end of a drain."""
        super().notify()
        if self._drained_at is not None and self.alive and monotonic_s() >= self._drained_at:
            super().handle_exit(signal.SIGTERM, None)


def _has_request(connection: ssl.SSLSocket) -> bool:
    """Whether something has arrived behind the handshake, or does within a moment."""
    if connection.pending():
        return True
    with selectors.DefaultSelector() as waiting:
        waiting.register(connection, selectors.EVENT_READ)
        return bool(waiting.select(_MOMENT_S))


class GunicornLog(Logger):  # type: ignore[misc]  # gunicorn ships no types
    """gunicorn's warnings and errors, through our handler; no access log."""

    def setup(self, cfg: Any) -> None:
        """Hands on to the root logger."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True

    def exception(self, msg: str, *args: object, **kwargs: Any) -> None:
        """Peers that vanish or stall are their own business; other errors keep their trace."""
        if isinstance(sys.exc_info()[1], OSError):
            self.error_log.debug(msg, *args)
        else:
            super().exception(msg, *args, **kwargs)


def end_with_parent(parent: int) -> bool:
    """Asks the kernel to kill this process when `parent` ends; False if it ended already.

    Where prctl is missing (not Linux) gunicorn's own check of the parent remains: a few seconds.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent
