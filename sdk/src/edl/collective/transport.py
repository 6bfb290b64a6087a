"""Sockets of the ring, the interrupt, and the only place where a collective call blocks."""

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
"""Called with the monotonic time since when a call has been blocked; with None once it no longer is."""

REPORT_AFTER_S = 0.25
"""Shorter waits are not reported."""
_MAX_WAIT_S = 60.0
_BACKLOG = 128
READ, WRITE = select.POLLIN, select.POLLOUT

_open: WeakSet[socket.socket] = WeakSet()
"""Sockets that forked children must close. A forked child, such as a data loader's worker, shares its
parent's sockets. While it lives, peers would not notice that the connections of a killed parent ended."""


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket.

    Args:
        host: Address to bind to; empty for all IPv4 and IPv6 addresses, since a pod may have only IPv6.
        port: Port to bind to; 0 for any free port.

    Raises:
        OSError: The address cannot be bound.
    """
    is_dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in host else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual
    )


def track(sock: socket.socket) -> socket.socket:
    """Makes a socket non-blocking, and has it closed in children that are forked later."""
    sock.setblocking(False)
    _open.add(sock)
    return sock


def configure(connection: socket.socket) -> socket.socket:
    """Configures a connection to send small writes at once (TCP_NODELAY), and calls `track`."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return track(connection)


def disconnect(connection: socket.socket) -> None:
    """Shuts down and closes a connection, so that the peer sees its end even if a child has a copy."""
    with contextlib.suppress(OSError):  # it was never connected, or the peer has ended it
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
        """Ends the blocked call, or the next one; the flag stays set until `clear`."""
        with self._lock:
            if not self._set:
                self._set = True
                with contextlib.suppress(OSError):  # already closed: nothing waits for the flag
                    self._writer.send(b"!")

    def clear(self) -> None:
        """Resets the flag, so that collective calls work again."""
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
    """Polls sockets and an interrupt, and reports long waits; only one thread may use it."""

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
            self._poll.unregister(descriptor)  # 0 events would still report errors and hang-ups
            del self._watched[descriptor]

    def check(self) -> None:
        """Raises an error if the interrupt is set.

        Raises:
            RoundOver: The interrupt is set.
        """
        if self._interrupt.is_set:
            raise RoundOver("the collective call was interrupted by news of another round")

    def wait(self, timeout_s: float = _MAX_WAIT_S) -> list[tuple[int, int]]:
        """Blocks until a watched event occurs.

        Args:
            timeout_s: Maximum wait in seconds.

        Returns:
            Descriptors and their events; an empty list after the timeout.

        Raises:
            RoundOver: The wait was interrupted.
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
        """Records that the call has made progress, which restarts the timing of waits."""
        self._since = None
        if self._reported:
            self._reported = False
            self._report(None)

    def _report(self, since: float | None) -> None:
        if self.on_wait is not None:
            self.on_wait(since)
