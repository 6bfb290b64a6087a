"""The folder in memory in which an agent keeps its snapshots."""

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

MEMORY = Path("/dev/shm")  # noqa: S108 - only the pod's processes share it
_PREFIX = "edl-snapshots-"
_LOCK = "lock"
_DIGITS = 16
_ABANDONED_S = 3_600.0
"""An agent that was killed this long ago is not expected to restart."""


class SnapshotFolder:
    """The folder of one agent. After being killed and restarted, the agent finds its snapshots there."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self._lock = path, lock

    def close(self) -> None:
        """Removes the folder, because the job has ended or other pods have its snapshots."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def open_folder(settings: Settings, memory: Path = MEMORY) -> SnapshotFolder | None:
    """Opens the folder of an agent; returns None if there is no shared memory.

    Args:
        settings: Settings of the agent; an agent of the same name, job and master gets the same folder.
        memory: A file system in memory.

    Raises:
        SettingError: Another agent with this name is running here.
    """
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        log.info("snapshots are not kept: %s is not writable", memory)
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
        log.warning("snapshots are not kept: %s", one_line(error))
        return None
    if lock is None:
        raise SettingError(
            f"another agent named {settings.trainer} is running here: set EDL_TRAINER"
        )
    return SnapshotFolder(path, lock)


def _sweep(memory: Path) -> None:
    """Removes the folders of this user's agents that were killed and not restarted."""
    for path in memory.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            is_old = clock.epoch_s() - status.st_mtime > _ABANDONED_S
            lock = _locked(path) if is_old and status.st_uid == os.getuid() else None
            if lock is not None:
                SnapshotFolder(path, lock).close()


def _locked(folder: Path) -> int | None:
    """Locks a folder for the life of this process; returns None if another process has locked it."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
