"""Stores parts of snapshots as files in memory.

Each process has two slots, so that one part stays complete while another is written. A slot is a data
file, and a JSON record once the file is complete; a half-written file has no record and is ignored.
Writers and readers hold a file lock, which the kernel releases if a process dies.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from edl.errors import CheckpointError

OWN, COPY = "own", "copy"
_SLOTS = 2
_RECORD = ".json"
_BLOCK_BYTES = 512
_MODE = 0o600


@dataclass(frozen=True)
class SnapshotPart:
    """The part of a snapshot that one process has saved."""

    round: int
    """The round in which the part was saved."""
    step: int
    rank: int
    """Number of the part in the snapshot, from 0."""
    count: int
    """Number of parts in the snapshot."""
    bytes: int

    @property
    def snapshot(self) -> tuple[int, int, int]:
        """Key of the snapshot that the part belongs to; later snapshots have greater keys."""
        return self.round, self.step, self.count


def find_parts(folder: Path) -> dict[SnapshotPart, Path]:
    """Returns the complete parts in a folder, and the file of each part."""
    parts: dict[SnapshotPart, Path] = {}
    for path in sorted(folder.glob(f"*{_RECORD}")):
        # another process may remove the record, or have written it incompletely
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            fields = json.loads(path.read_bytes())
            part = SnapshotPart(**{name: int(value) for name, value in fields.items()})
            file = path.with_suffix("")
            if file.stat().st_size == part.bytes:
                parts.setdefault(part, file)
    return parts


@contextlib.contextmanager
def reading(folder: Path, part: SnapshotPart) -> Iterator[int | None]:
    """Opens a part, and prevents writers from overwriting it while it is open.

    Yields the descriptor, or None if the part does not exist or is being overwritten.
    """
    file = find_parts(folder).get(part)
    if file is None:
        yield None
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        is_there = _lock(descriptor, shared=True) and find_parts(folder).get(part) == file
        yield descriptor if is_there else None
    finally:
        os.close(descriptor)


def remove(part: Path) -> None:
    """Removes a part's record, then its file."""
    part.with_name(part.name + _RECORD).unlink(missing_ok=True)
    part.unlink(missing_ok=True)


class Slots:
    """The two slots of one writer; not thread-safe."""

    def __init__(self, folder: Path, name: str, limit_bytes: int = 0) -> None:
        """Determines the slots' file names, without creating the files yet.

        Args:
            folder: The folder in memory for one pod's parts.
            name: The writer's name, which must stay the same after a restart.
            limit_bytes: Limit for all files in the folder together; 0 if only the file system limits them.
        """
        self._folder, self._limit_bytes = folder, limit_bytes
        self._files = [folder / f"{name}.{slot}" for slot in range(_SLOTS)]

    def open(self, size: int) -> int | None:
        """Drops the older of the two parts and opens its slot for writing.

        Args:
            size: Size in bytes of the part to write.

        Returns:
            The locked descriptor, or None if another process still reads the slot.

        Raises:
            CheckpointError: There is not enough memory.
        """
        parts = {file: part for part, file in find_parts(self._folder).items()}
        file = min(self._files, key=lambda f: parts[f].snapshot if f in parts else ())
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, _MODE)
        try:
            if not _lock(descriptor, shared=False):
                os.close(descriptor)
                return None
            self._record(file).unlink(missing_ok=True)
            self._allocate(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        self._current = file
        return descriptor

    def commit(self, descriptor: int, part: SnapshotPart) -> None:
        """Records that the slot returned by `open` holds a complete part, and closes it."""
        record = self._record(self._current)
        hidden = record.with_suffix(".new")
        hidden.write_text(json.dumps(asdict(part)), encoding="utf-8")
        hidden.rename(record)
        os.close(descriptor)

    def _record(self, file: Path) -> Path:
        return file.with_name(file.name + _RECORD)

    def _allocate(self, descriptor: int, size: int) -> None:
        """Allocates the slot's memory in advance, so that writing to the slot cannot fail."""
        slot_bytes = os.fstat(descriptor).st_blocks * _BLOCK_BYTES
        more_bytes = max(0, size - slot_bytes)
        used_bytes = sum(_allocated(path) for path in self._folder.iterdir())
        filesystem = os.statvfs(self._folder)
        free_bytes = filesystem.f_bavail * filesystem.f_frsize
        if self._limit_bytes and used_bytes + more_bytes > self._limit_bytes:
            raise CheckpointError(
                f"no memory for a snapshot of {_text(size)}: this pod's snapshots use {_text(used_bytes)} "
                f"of {_text(self._limit_bytes)} (--snapshot-memory); allow four times the state that "
                "the pod's processes save"
            )
        if more_bytes > free_bytes:
            raise _no_memory(self._folder, size, free_bytes)
        os.ftruncate(descriptor, size)
        if os.fstat(descriptor).st_blocks * _BLOCK_BYTES < size:
            # a fully allocated file skips this: visiting each page would take a third of the copy's time
            try:
                os.posix_fallocate(descriptor, 0, size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise _no_memory(self._folder, size, free_bytes) from error


def _no_memory(folder: Path, size: int, free_bytes: int) -> CheckpointError:
    return CheckpointError(
        f"{folder.parent} has {_text(free_bytes)} free, too little for a snapshot of {_text(size)}: mount "
        f"an emptyDir with medium Memory at {folder.parent}, and raise the container's memory by its "
        "size; a pod needs four times the state that its processes save"
    )


def _lock(descriptor: int, *, shared: bool) -> bool:
    import fcntl  # noqa: PLC0415 - some systems on which programs import edl lack fcntl

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _allocated(path: Path) -> int:
    try:
        return path.stat().st_blocks * _BLOCK_BYTES
    except OSError:
        return 0


def _text(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"  # noqa: PLR2004 - converts units
