"""Ports that nobody listens on, and that whoever is started again finds free again."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

_LOWEST = 10_000
_FIRST_GIVEN = 49_152
"""Of the ports that systems give to connections, by RFC 6335; Linux says its own."""
_TRIES = 100
"""For each; then any port will do."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """So many different ones, below those that the system gives to connections."""
    below = range(_LOWEST, _first_given())
    tried = random.sample(below, min(len(below), _TRIES * count))
    with ExitStack() as stack:
        found: list[int] = []
        for port in [*tried, *[0] * count]:
            if len(found) == count:
                break
            one = stack.enter_context(socket.socket())
            with suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(int(one.getsockname()[1]))
        return found


def _first_given() -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(_RANGE.read_text().split()[0])
    return _FIRST_GIVEN
