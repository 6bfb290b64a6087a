"""What breaks a blocked exchange from another thread."""

from __future__ import annotations

import contextlib
import socket
import threading


class Interrupt:
    """A flag that a blocked call can wait for beside its sockets; all methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)

    def set(self) -> None:
        """Ends the exchange that is blocked now, or the next one; stays set until `clear`."""
        with self._lock:
            if not self._set:
                self._set = True
                with contextlib.suppress(OSError):  # closed meanwhile: nobody waits any more
                    self._mouth.send(b"!")

    def clear(self) -> None:
        """Exchanges work again."""
        with self._lock:
            if self._set:
                self._set = False
                with contextlib.suppress(OSError):
                    self._ear.recv(1)

    @property
    def is_set(self) -> bool:
        """Whether exchanges end at once."""
        return self._set

    def fileno(self) -> int:
        """Readable while this is set."""
        return self._ear.fileno()

    def close(self) -> None:
        """Gives the descriptors back; nothing may wait for it any more."""
        with self._lock:
            self._ear.close()
            self._mouth.close()
