"""How much memory a process may use, as the kernel says: its container's limit, or the machine's."""

import os
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Of version 2 and version 1 of control groups."""
SHARE = 0.7
"""For arrays; the rest is for the interpreter and for bodies on their way."""


def most_bytes() -> int:
    """For arrays."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(SHARE * min([machine, *_told()]))


def _told() -> list[int]:
    found = []
    for name in _LIMITS:
        try:
            found.append(int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # not this version, or "max"
            continue
    return [limit for limit in found if limit > 0]
