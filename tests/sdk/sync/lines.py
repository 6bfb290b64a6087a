"""A trainer's connection to its master that can be cut: the trainer behind it seems frozen."""

from __future__ import annotations

import contextlib
import socket
import threading

_JOIN_S = 60.0
_CHUNK_BYTES = 1 << 16


class Line:
    """Carries bytes both ways between any number of connections and one port; closed by `close`."""

    def __init__(self, port: int) -> None:
        """Listens.

        Args:
            port: Of the master.
        """
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._cut = False
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="line", daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        """Ends all connections, and each new one at once."""
        with self._lock:
            self._cut = True
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Lets new connections reach the master again."""
        with self._lock:
            self._cut = False

    def close(self) -> None:
        """Ends all threads."""
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(_JOIN_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._join(near)

    def _join(self, near: socket.socket) -> None:
        with self._lock:
            if self._cut:
                near.close()
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            for end in (near, far):  # the parts of a request go on without a pause
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open |= {near, far}
        both = [
            threading.Thread(target=self._carry, args=ends, name="line", daemon=True)
            for ends in ((near, far), (far, near))
        ]
        self._threads += both
        for thread in both:
            thread.start()
        threading.Thread(target=self._end, args=(both, near, far), name="line", daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while raw := source.recv(_CHUNK_BYTES):
                target.sendall(raw)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _end(self, both: list[threading.Thread], *ends: socket.socket) -> None:
        for thread in both:
            thread.join()
        with self._lock:
            self._open -= set(ends)
        for end in ends:
            end.close()
