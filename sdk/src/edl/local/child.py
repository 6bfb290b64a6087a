"""Starts a program that ends when its parent process ends: `child PARENT_PID PROGRAM...`.

A run then leaves no processes behind, even if `edl run` is killed. This works on Linux; on other
systems the program outlives its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2); the setting survives exec."""


def main(argv: list[str]) -> None:
    """Makes the kernel send SIGTERM when the parent ends, then executes the program."""
    parent = int(argv[0])
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the call
            sys.exit(128 + signal.SIGTERM)
    os.execv(argv[1], argv[1:])  # noqa: S606 - runs the program that the user named


if __name__ == "__main__":
    main(sys.argv[1:])
