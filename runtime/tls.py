"""The serving certificate, read again when its files change, so that renewal needs no restart.

Who calls: `runtime.serve`, once per new connection; a stat costs microseconds, a rebuilt
context about a millisecond. Sockets made here carry a timeout: a peer that stops in the
middle of a handshake or a request frees its thread.
"""

import logging
import socket
import ssl
import threading
from pathlib import Path

from runtime.logs import keys, one_line

IO_TIMEOUT_S = 5.0
"""How long one read or write may wait for the peer; the API server's own patience is 2 to 10 s."""

log = logging.getLogger(__name__)


class TimedSocket(socket.socket):
    """A socket on which "blocking" means: blocking up to IO_TIMEOUT_S."""

    def setblocking(self, flag: bool, /) -> None:
        """Non-blocking, or blocking with the timeout."""
        self.settimeout(IO_TIMEOUT_S if flag else 0.0)


class TimedSSLSocket(ssl.SSLSocket):
    """The same for TLS; it inherits the timeout of the socket it wraps for the handshake."""

    def setblocking(self, flag: bool, /) -> None:
        """Non-blocking, or blocking with the timeout."""
        self.settimeout(IO_TIMEOUT_S if flag else 0.0)


class Certificates:
    """A server's TLS context that follows its files.

    Args:
        cert: PEM; certificate and key in one file are replaced in one rename.
        key: PEM of the key where it is a file of its own.
        client_ca: PEM; clients may then present a certificate, and it must be of this CA. That
            they do is checked per route (`runtime.web`), so that probes work without one.
    """

    def __init__(self, cert: Path, key: Path | None = None, client_ca: Path | None = None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._context = self._build()

    def current(self) -> ssl.SSLContext:
        """The context to use now; the last good one while the files cannot be used."""
        with self._lock:
            try:
                stamp = self._look()
                if stamp != self._stamp:
                    self._stamp = stamp  # first: a bad file is tried and reported once
                    self._context = self._build()
                    log.info("certificate read again", extra=keys(file=self._cert))
            except (OSError, ValueError) as error:
                log.warning(
                    "certificate unusable, last one stays",
                    extra=keys(file=self._cert, error=one_line(error)),
                )
            return self._context

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        """What changes when a file is replaced or written."""
        stats = [f.stat() for f in (self._cert, self._key, self._client_ca) if f is not None]
        return tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in stats)

    def _build(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self._client_ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sslsocket_class = TimedSSLSocket
        context.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
        return context
