"""Finds free ports that stay free until a server listens on them, and while the server restarts."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path

_LOWEST = 10_000
_FIRST_EPHEMERAL = 49_152
"""Start of the ephemeral ports in RFC 6335; Linux has a different range, see /proc."""
_TRIES = 100
"""Number of attempts per port; after them, the kernel chooses a port."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RESERVED = 64
_reservations: deque[int] = deque()
"""Descriptors that reserve the newest ports of this process against other callers of `free_ports`."""


def free_ports(count: int) -> list[int]:
    """Returns distinct free ports below the ephemeral range.

    On Linux, `free_ports` never returns the last 64 ports of a living process to another process of the
    same network namespace.
    """
    below = range(_LOWEST, _first_ephemeral())
    candidates = random.sample(below, min(len(below), _TRIES * count))
    with ExitStack() as stack:
        ports: list[int] = []
        for port in [*candidates, *[0] * count]:
            if len(ports) == count:
                break
            listener = stack.enter_context(socket.socket())
            with suppress(OSError):
                listener.bind(("127.0.0.1", port))
                chosen = int(listener.getsockname()[1])
                _reserve(chosen)
                ports.append(chosen)
        return ports


def _reserve(port: int) -> None:
    """Reserves a port by an abstract Unix socket that is named after the port and ends with this process.

    Raises:
        OSError: This process or another one has reserved the port.
    """
    if sys.platform != "linux":
        return  # only Linux has abstract sockets
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reservation:
        reservation.bind(f"\0edl-port-{port}")
        _reservations.append(reservation.detach())
    if len(_reservations) > _RESERVED:
        os.close(_reservations.popleft())


def _first_ephemeral() -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(_RANGE.read_text().split()[0])
    return _FIRST_EPHEMERAL
