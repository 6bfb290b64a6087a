"""A member's own way to the coordination service, which stays open where the service is lost.

JAX ends a process whose connection to the service ends, and that cannot be switched off. So JAX connects to a
socket of its own process, and what it sends is passed on. If the service's pod or node is gone, JAX
waits for answers that nobody needs, as the master says who is a member.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

_CONNECT_S = 10.0
_BYTES = 1 << 16


class ServiceRelay:
    """Passes on what JAX and a coordination service say to each other."""

    def __init__(self, address: str) -> None:
        """Listens; connects to the service once JAX has connected.

        Args:
            address: Of the service, as host:port.
        """
        host, _, port = address.rpartition(":")
        self._service = host.strip("[]"), int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        """At which JAX of this process finds it."""
        self._lock = threading.Lock()
        self._sockets = [self._listener]
        _start(self._accept)

    def close(self) -> None:
        """Ends it: not before JAX has left the service."""
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)  # ends the calls of the threads
                each.close()
            self._sockets.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                own, _ = self._listener.accept()
                try:
                    service = socket.create_connection(self._service, _CONNECT_S)
                except OSError:
                    own.close()  # JAX tries again; news of the master end that
                    continue
                service.settimeout(None)
                with self._lock:
                    self._sockets += [own, service]
                _start(_pass_on, own, service)
                _start(_pass_on, service, own)


def _start(run: Callable[..., None], *arguments: socket.socket) -> None:
    threading.Thread(target=run, args=arguments, name="edl-jax-relay", daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Passes on until either is lost; both stay open."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(_BYTES):
            target.sendall(chunk)
