"""The memory limit of this process: that of its container, or the machine's memory."""

import os
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files of cgroup v2 and v1."""
ARRAY_FRACTION = 0.7
"""Share of the memory for arrays; the rest is for the interpreter and for bodies in flight."""


def array_bytes() -> int:
    """Bytes that arrays may use."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(ARRAY_FRACTION * min([machine, *_cgroup_limits()]))


def _cgroup_limits() -> list[int]:
    limits = []
    for name in _LIMITS:
        try:
            limits.append(int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # not this version, or "max"
            continue
    return [limit for limit in limits if limit > 0]
