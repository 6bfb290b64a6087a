"""Where neighbours' connections arrive: one port for a process' life, over all its rounds.

No thread serves it. Connections wait in the kernel's queue until `Ring.connect` looks at them;
those that are for a later round are then kept here, a few at most.
"""

from __future__ import annotations

import socket
from collections import deque

from edl.exchange import sockets
from edl.exchange.handshake import Hello

_BACKLOG = 128
_MOST_KEPT = 16


class Listener:
    """Used by the thread that connects rings."""

    def __init__(self, host: str, port: int = 0) -> None:
        """Listens at once.

        Args:
            host: To bind to; empty for all addresses.
            port: 0 for any free one.

        Raises:
            OSError: The address cannot be had; the system's text says why.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._socket = sockets.adopt(made)
        self._kept: deque[tuple[socket.socket, Hello]] = deque()
        found = self._socket.getsockname()
        self.address: tuple[str, int] = (str(found[0]), int(found[1]))

    def fileno(self) -> int:
        """Readable when somebody is at the door."""
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """The next connection, or None where none waits."""
        try:
            made, _ = self._socket.accept()
        except OSError:  # nobody there, or gone again before it was taken
            return None
        return sockets.prompt(made)

    def keep(self, made: socket.socket, greeting: Hello) -> None:
        """Keeps a connection for a later round; the oldest goes when there are too many."""
        self._kept.append((made, greeting))
        if len(self._kept) > _MOST_KEPT:
            self._kept.popleft()[0].close()  # its maker tries again

    def kept(self) -> list[tuple[socket.socket, Hello]]:
        """Hands over what was kept, oldest first."""
        found = list(self._kept)
        self._kept.clear()
        return found

    def close(self) -> None:
        """Listens no more; rings that are connected stay so."""
        for made, _ in self.kept():
            made.close()
        self._socket.close()
