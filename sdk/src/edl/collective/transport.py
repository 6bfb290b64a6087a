"""Sockets of the ring, the interrupt, and the one place where a collective call blocks."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable
from weakref import WeakSet

from edl import clock
from edl.errors import RoundOver

OnWait = Callable[["float | None"], None]
"""Called with the time (monotonic seconds) since when a call is blocked, and with None when it
is no longer blocked."""

REPORT_AFTER_S = 0.25
"""Shorter waits are not reported."""
_MAX_WAIT_S = 60.0
_BACKLOG = 128
READ, WRITE = select.POLLIN, select.POLLOUT

_open: WeakSet[socket.socket] = WeakSet()
"""Sockets that forked children must close: a child that was forked (a data loader's worker) shares
its parent's sockets, and as long as it lives peers would not see that a killed parent's connections
have ended."""


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens.

    Args:
        host: Empty for all addresses, of IPv4 and IPv6: a pod may have one of IPv6 alone.
        port: 0 for any free one.

    Raises:
        OSError: The address cannot be bound; the system's text gives the reason.
    """
    is_dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in host else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual
    )


def track(sock: socket.socket) -> socket.socket:
    """Makes a socket non-blocking, and closes it in children that are forked from now on."""
    sock.setblocking(False)
    _open.add(sock)
    return sock


def configure(connection: socket.socket) -> socket.socket:
    """As `track`, for a connection; small writes are sent at once (TCP_NODELAY)."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return track(connection)


def disconnect(connection: socket.socket) -> None:
    """Shuts a connection down and closes it: the peer sees its end even if a child has a copy."""
    with contextlib.suppress(OSError):  # never connected, or ended by the peer
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _close_in_child() -> None:
    for sock in list(_open):
        sock.close()


os.register_at_fork(after_in_child=_close_in_child)


class Interrupt:
    """A flag that ends blocked collective calls from another thread; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def set(self) -> None:
        """Ends the call that is blocked now, or the next one; stays set until `clear`."""
        with self._lock:
            if not self._set:
                self._set = True
                with contextlib.suppress(OSError):  # closed meanwhile: nothing waits for it
                    self._writer.send(b"!")

    def clear(self) -> None:
        """Resets the flag: collective calls work again."""
        with self._lock:
            if self._set:
                self._set = False
                with contextlib.suppress(OSError):
                    self._reader.recv(1)

    @property
    def is_set(self) -> bool:
        """Whether collective calls end at once."""
        return self._set

    def fileno(self) -> int:
        """Returns a descriptor that is readable while the flag is set."""
        return self._reader.fileno()

    def close(self) -> None:
        """Closes the descriptors; nothing may wait for the flag after this."""
        with self._lock:
            self._reader.close()
            self._writer.close()


class Waiter:
    """Polls sockets and an interrupt, and reports long waits; used by the thread that calls."""

    def __init__(self, interrupt: Interrupt, on_wait: OnWait | None) -> None:
        self._interrupt = interrupt
        self.on_wait = on_wait
        self._poll = select.poll()
        self._poll.register(interrupt.fileno(), READ)
        self._watched: dict[int, int] = {}
        self._since: float | None = None
        self._reported = False

    def watch(self, descriptor: int, events: int) -> None:
        """Sets the events to wait for on a descriptor; 0 stops watching it."""
        if self._watched.get(descriptor, 0) == events:
            return
        if events:
            self._poll.register(descriptor, events)
            self._watched[descriptor] = events
        else:
            self._poll.unregister(descriptor)  # errors and hang-ups are ignored as well
            del self._watched[descriptor]

    def check(self) -> None:
        """Raises if the interrupt is set.

        Raises:
            RoundOver: It is.
        """
        if self._interrupt.is_set:
            raise RoundOver("the collective call was interrupted by news of another round")

    def wait(self, timeout_s: float = _MAX_WAIT_S) -> list[tuple[int, int]]:
        """Blocks until a watched event occurs.

        Args:
            timeout_s: Longest wait.

        Returns:
            Descriptors and their events; an empty list after the time-out.

        Raises:
            RoundOver: It was interrupted.
        """
        now = clock.monotonic_s()
        if self._since is None:
            self._since = now
        deadline = now + timeout_s
        while True:
            until = deadline if self._reported else min(deadline, self._since + REPORT_AFTER_S)
            events = self._poll.poll(max(0.0, until - now) * 1000)
            self.check()
            if events:
                return events
            now = clock.monotonic_s()
            if not self._reported and now >= self._since + REPORT_AFTER_S:
                self._reported = True
                self._report(self._since)
            if now >= deadline:
                return []

    def note_progress(self) -> None:
        """Records that the call has advanced: the next wait is timed from its own start."""
        self._since = None
        if self._reported:
            self._reported = False
            self._report(None)

    def _report(self, since: float | None) -> None:
        if self.on_wait is not None:
            self.on_wait(since)
