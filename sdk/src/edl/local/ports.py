"""Finds free ports that stay free until their server listens, and while it is restarted."""

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
"""Start of the ephemeral ports by RFC 6335; Linux has its own range."""
_TRIES = 100
"""Attempts for each port; after them any port is used."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RESERVED = 64
_reservations: deque[int] = deque()
"""Descriptors that keep the newest ports of this process from others that call `free_ports`."""


def free_ports(count: int) -> list[int]:
    """Returns different free ports below the ephemeral range.

    On Linux no other process of this network namespace is given the newest 64 of a process while it lives.
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
    """Takes a port's name among the abstract Unix sockets, which end with their process.

    Raises:
        OSError: another process has it, or this one.
    """
    if sys.platform != "linux":
        return  # abstract names are Linux's
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reservation:
        reservation.bind(f"\0edl-port-{port}")
        _reservations.append(reservation.detach())
    if len(_reservations) > _RESERVED:
        os.close(_reservations.popleft())


def _first_ephemeral() -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(_RANGE.read_text().split()[0])
    return _FIRST_EPHEMERAL
