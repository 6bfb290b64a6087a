"""The serving certificate. It is reloaded when its files change, so that renewal needs no restart.

Who calls: `runtime.listener`, for each new connection. A stat takes microseconds, a new context a millisecond.
"""

import logging
import ssl
import threading
from pathlib import Path

from runtime.logs import keys, one_line

log = logging.getLogger(__name__)


class Certificates:
    """A server's TLS context that is reloaded when its files change.

    Args:
        cert: PEM file; certificate and key in one file can be replaced atomically.
        key: PEM file of the key, if it is a separate file.
        client_ca: PEM file of a CA; the handshake then fails unless the client has a certificate of this CA.
    """

    def __init__(self, cert: Path, key: Path | None = None, client_ca: Path | None = None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._lock = threading.Lock()
        self._stamp = self._file_stamps()
        self._context = self._build()

    def current(self) -> ssl.SSLContext:
        """Returns the context for a new connection: the last valid one while the files are unusable."""
        with self._lock:
            try:
                stamp = self._file_stamps()
                if stamp != self._stamp:
                    self._stamp = stamp  # set first: an unusable file is tried only once
                    self._context = self._build()
                    log.info("certificate reloaded", extra=keys(file=self._cert))
            except (OSError, ValueError) as error:
                log.warning(
                    "certificate unusable, keeping the previous one",
                    extra=keys(file=self._cert, error=one_line(error)),
                )
            return self._context

    def _file_stamps(self) -> tuple[tuple[int, int, int], ...]:
        """Returns the inode, time and size of each file; they change when the file is replaced or written."""
        stats = [f.stat() for f in (self._cert, self._key, self._client_ca) if f is not None]
        return tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in stats)

    def _build(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self._client_ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context
