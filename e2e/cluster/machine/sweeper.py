"""Removes what the kernel does not take away with a real node: cgroups and files.

A script of its own (`python sweeper.py CGROUP DIRECTORY...`, standard library only), started
by `fleet.py` beside the nodes. It waits until its standard input closes, which happens when
the nodes were stopped and also when their starter was killed; then it removes the cgroup of
that name in every hierarchy, as soon as it is empty, and the directories.
"""

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PATIENCE_S = 10.0
POLL_S = 0.05


def places(name: str) -> list[Path]:
    """The cgroup's directories: one in version 2, one for each controller in version 1."""
    return [place for place in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")) if place.is_dir()]


def remove(name: str) -> bool:
    """Removes the cgroup of that name, and those in it, as soon as no process is in them.

    Returns:
        False if there still was one when patience ended.
    """
    end = time.monotonic() + PATIENCE_S
    while remaining := places(name):
        if time.monotonic() > end:
            return False
        for place in remaining:
            _sweep(place)
        time.sleep(POLL_S)
    return True


def main(name: str, directories: list[str]) -> int:
    """Waits for the end of the nodes; the exit code is 1 if something is left."""
    sys.stdin.buffer.read()
    removed = remove(name)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if removed else 1


def _sweep(place: Path) -> None:
    for directory, _, _ in os.walk(place, topdown=False):
        with contextlib.suppress(OSError):  # a process is in it, or it was removed concurrently
            Path(directory).rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
