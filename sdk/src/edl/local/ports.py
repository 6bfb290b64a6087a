"""Finds free ports that stay free when a server is restarted."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

_LOWEST = 10_000
_FIRST_EPHEMERAL = 49_152
"""Start of the ephemeral ports by RFC 6335; Linux has its own range."""
_TRIES = 100
"""Attempts for each port; after them any port is used."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Returns different free ports below the ephemeral range."""
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
                ports.append(int(listener.getsockname()[1]))
        return ports


def _first_ephemeral() -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(_RANGE.read_text().split()[0])
    return _FIRST_EPHEMERAL
