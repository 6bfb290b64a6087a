"""Sockets of the exchange: how they are set up, and that forked children do not keep them open.

A child that was forked (a data loader's worker) shares its parent's sockets. Should the parent be
killed, peers would see no end of the connection while the child lives.
"""

from __future__ import annotations

import contextlib
import os
import socket
from weakref import WeakSet

_open: WeakSet[socket.socket] = WeakSet()


def adopt(made: socket.socket) -> socket.socket:
    """Makes a socket non-blocking, and closes it in children that are forked from now on."""
    made.setblocking(False)
    _open.add(made)
    return made


def prompt(made: socket.socket) -> socket.socket:
    """As `adopt`, for a connection: small pieces leave at once."""
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return adopt(made)


def end(made: socket.socket) -> None:
    """Closes for good: the peer sees the end even where a child holds a copy."""
    with contextlib.suppress(OSError):  # never connected, or ended by the peer
        made.shutdown(socket.SHUT_RDWR)
    made.close()


def _leave_to_parent() -> None:
    for made in list(_open):
        made.close()


os.register_at_fork(after_in_child=_leave_to_parent)
