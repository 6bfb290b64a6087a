"""The folder in memory in which one agent keeps its snapshots."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
from pathlib import Path

from edl import clock
from edl.errors import SettingError, one_line
from edl.master.settings import Settings

log = logging.getLogger("edl")

MEMORY = Path("/dev/shm")  # noqa: S108 - shared with the processes of this pod alone
_PREFIX = "edl-snapshots-"
_LOCK = "lock"
_DIGITS = 16
_ABANDONED_S = 3_600.0
"""After this time an agent that was killed does not come back."""


class SnapshotFolder:
    """A folder that no other agent uses; an agent that starts again after a kill finds its snapshots there."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self._lock = path, lock

    def close(self) -> None:
        """Removes the folder: the job is over, or other pods have its snapshots."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def open_folder(settings: Settings, memory: Path = MEMORY) -> SnapshotFolder | None:
    """Returns the folder of an agent; None where there is no memory to share.

    Args:
        settings: Of the agent; one of the same name for the same master finds what was left.
        memory: A file system in memory.

    Raises:
        SettingError: Another agent of this name runs here.
    """
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        log.info("%s cannot be written: no snapshots are kept", memory)
        return None
    _sweep(memory)
    identity = f"{os.getuid()} {settings.master} {settings.job} {settings.trainer}"
    path = memory / f"{_PREFIX}{hashlib.sha256(identity.encode()).hexdigest()[:_DIGITS]}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        if path.lstat().st_uid != os.getuid():
            raise SettingError(f"{path} belongs to another user: remove it")
        lock = _locked(path)
    except OSError as error:
        log.warning("no snapshots are kept: %s", one_line(error))
        return None
    if lock is None:
        raise SettingError(f"another agent runs here as {settings.trainer}: set EDL_TRAINER")
    return SnapshotFolder(path, lock)


def _sweep(memory: Path) -> None:
    """Removes folders of this user's agents that were killed and not started again."""
    for path in memory.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            about = path.lstat()
            is_old = clock.epoch_s() - about.st_mtime > _ABANDONED_S
            lock = _locked(path) if is_old and about.st_uid == os.getuid() else None
            if lock is not None:
                SnapshotFolder(path, lock).close()


def _locked(folder: Path) -> int | None:
    """Locks a folder for the life of this process; None if another process has it."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
