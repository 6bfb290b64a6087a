"""Parts of snapshots as files in memory: each process of a pod has two slots, one of which is always complete.

A slot is a file and, once it is complete, a record beside it. Who writes a slot locks it, and who
reads it does, so that a process which dies leaves nothing locked and nothing half-written that counts.
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
    """The part of a snapshot that one process has saved; a snapshot has `count` parts."""

    round: int
    """In which it was saved."""
    step: int
    rank: int
    """Its number in the snapshot, from 0."""
    count: int
    bytes: int

    @property
    def snapshot(self) -> tuple[int, int, int]:
        """Which snapshot it is part of; later ones are greater."""
        return self.round, self.step, self.count


def find_parts(folder: Path) -> dict[SnapshotPart, Path]:
    """Returns the complete parts in a folder, and their files."""
    parts: dict[SnapshotPart, Path] = {}
    for path in sorted(folder.glob(f"*{_RECORD}")):
        with contextlib.suppress(
            OSError, ValueError, TypeError, AttributeError
        ):  # another removes it
            part = SnapshotPart(
                **{name: int(value) for name, value in json.loads(path.read_bytes()).items()}
            )
            file = path.with_suffix("")
            if file.stat().st_size == part.bytes:
                parts.setdefault(part, file)
    return parts


@contextlib.contextmanager
def reading(folder: Path, part: SnapshotPart) -> Iterator[int | None]:
    """Yields a descriptor of a part that nobody overwrites meanwhile; None if it is not there."""
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
    """Removes a part; its record first."""
    part.with_name(part.name + _RECORD).unlink(missing_ok=True)
    part.unlink(missing_ok=True)


class Slots:
    """The two slots of one writer; used by one thread."""

    def __init__(self, folder: Path, name: str, limit_bytes: int = 0) -> None:
        """Writes nothing yet.

        Args:
            folder: In memory, for the parts of one pod.
            name: The same after a restart.
            limit_bytes: Of all parts in the folder; 0 if only the folder's size limits them.
        """
        self._folder, self._limit_bytes = folder, limit_bytes
        self._files = [folder / f"{name}.{slot}" for slot in range(_SLOTS)]

    def open(self, size: int) -> int | None:
        """Returns a descriptor of the slot with the older part, which is gone then, locked.

        Args:
            size: In bytes, of the part that is to be written.

        Returns:
            None if somebody still reads it.

        Raises:
            CheckpointError: There is no room.
        """
        parts = {file: part for part, file in find_parts(self._folder).items()}
        file = min(self._files, key=lambda f: parts[f].snapshot if f in parts else ())
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, _MODE)
        try:
            if not _lock(descriptor, shared=False):
                os.close(descriptor)
                return None
            self._record(file).unlink(missing_ok=True)
            self._make_room(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        self._current = file
        return descriptor

    def commit(self, descriptor: int, part: SnapshotPart) -> None:
        """Records that the slot of `open` holds a whole part, and closes it."""
        record = self._record(self._current)
        hidden = record.with_suffix(".new")
        hidden.write_text(json.dumps(asdict(part)), encoding="utf-8")
        hidden.rename(record)
        os.close(descriptor)

    def _record(self, file: Path) -> Path:
        return file.with_name(file.name + _RECORD)

    def _make_room(self, descriptor: int, size: int) -> None:
        own_bytes = os.fstat(descriptor).st_blocks * _BLOCK_BYTES
        more_bytes = max(0, size - own_bytes)
        used_bytes = sum(_allocated(path) for path in self._folder.iterdir())
        about = os.statvfs(self._folder)
        free_bytes = about.f_bavail * about.f_frsize
        if self._limit_bytes and used_bytes + more_bytes > self._limit_bytes:
            raise CheckpointError(
                f"a snapshot of {_text(size)} does not fit: this pod's have {_text(used_bytes)} of "
                f"{_text(self._limit_bytes)} (--snapshot-memory): they need four times the state that a "
                "pod's processes save"
            )
        if more_bytes > free_bytes:
            raise _no_room(self._folder, size, free_bytes)
        os.ftruncate(descriptor, size)
        if os.fstat(descriptor).st_blocks * _BLOCK_BYTES < size:
            # not where it has all of its memory: looking at each page would take a third of the copy
            try:
                os.posix_fallocate(descriptor, 0, size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise _no_room(self._folder, size, free_bytes) from error


def _no_room(folder: Path, size: int, free_bytes: int) -> CheckpointError:
    return CheckpointError(
        f"{folder.parent} has {_text(free_bytes)} free, too little for a snapshot of {_text(size)}: mount "
        f"an emptyDir with medium Memory at {folder.parent}, and let the container have as much memory "
        "more; a pod needs four times the state that its processes save"
    )


def _lock(descriptor: int, *, shared: bool) -> bool:
    import fcntl  # noqa: PLC0415 - not on all systems on which programs import edl

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
    return f"{size / 1e6:.1f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"  # noqa: PLR2004 - units
