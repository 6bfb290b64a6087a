"""How much of each storm the long tests play: all of it, or the percentage in EDL_STORM."""

import os

_PERCENT = int(os.environ.get("EDL_STORM") or 100)


def part_of(whole: int) -> int:
    """Returns how many of a storm's `whole` changes, jobs or cases to play; at least one."""
    return max(1, whole * _PERCENT // 100)
