"""Checkpoints on disk: a folder for each checkpoint, a file for each server.

    DIR/JOB/000003-0000000000001200/shard-0-of-2            generation, version; committed
    DIR/JOB/000003-0000000000001800/shard-0-of-2.prepared   complete, but perhaps not on all servers
    DIR/JOB/generation-0-of-2

Two-phase commit: a server writes its file under a temporary name, syncs it and renames it to `.prepared`.
When all servers have prepared, each one commits. Incomplete checkpoints are ignored. Servers may share the
directory or have separate ones.
"""

import contextlib
import fcntl
import logging
import mmap
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from edl_protocol.fields import Json
from edl_protocol.frames import Body, Frame, size_of
from pydantic import ValidationError

from pserver import frames, shard_codec
from pserver.checkpoint import SHUTDOWN_VERSION, CheckpointName, StoredCheckpoint
from pserver.errors import ShardError
from runtime.logs import keys

log = logging.getLogger(__name__)

_FOLDER = re.compile(r"(\d{6,})-(\d{16})")
_FILE = re.compile(r"shard-(\d+)-of-(\d+)(\.prepared)?")


class _Stamp(NamedTuple):
    inode: int
    size: int
    changed_ns: int


class CheckpointStore:
    """The checkpoint files of one server. Used by one thread at a time."""

    def __init__(self, directory: Path, job: str, index: int, of: int) -> None:
        """Creates the folder if it is missing, and locks this server's files in it.

        Raises:
            ShardError: The folder cannot be used, or another process serves the same shard.
        """
        self.root = directory / job
        self._job, self._index, self._of = job, index, of
        self._checked: dict[Path, tuple[_Stamp, StoredCheckpoint | None]] = {}
        try:
            _make(self.root)
            self._lock = os.open(self._own("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _cannot("use", self.root, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ShardError(
                f"another parameter server {index} of {of} uses {self.root}: stop it, or choose "
                "another folder with --checkpoints"
            ) from error
        for path in self.root.rglob(f"*-{index}-of-{of}*.writing-*"):  # left by a killed process
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Unlocks the files."""
        os.close(self._lock)

    # -- generations -------------------------------------------------------------------------

    def generation(self) -> int:
        """Returns the newest generation that was served here or has a checkpoint; 0 if there is none."""
        numbers = [name.generation for name, _ in self._folders()]
        with contextlib.suppress(OSError, ValueError):
            numbers.append(int(self._own("generation").read_text(encoding="ascii")))
        return max(numbers, default=0)

    def record_generation(self, generation: int) -> None:
        """Records a generation on disk, before it is served.

        Raises:
            ShardError: The generation cannot be written.
        """
        data = [memoryview(b"%d\n" % generation)]
        try:
            _write(self._own("generation"), data)
        except OSError as error:
            raise _cannot("write", self.root, error) from error

    # -- writing -----------------------------------------------------------------------------

    def prepare(self, name: CheckpointName, meta: Json, arrays: Mapping[str, Body]) -> int:
        """Writes this server's file of a checkpoint, and syncs it.

        Args:
            name: The checkpoint's name.
            meta: The header, from `pserver.shard_codec`.
            arrays: The arrays, from `pserver.shard_codec`.

        Returns:
            The file's size in bytes.

        Raises:
            ShardError: The file could not be written; nothing of it is left.
        """
        folder = self.root / name.folder
        path = folder / f"{self._shard(name.of)}.prepared"
        parts = frames.encode(meta, arrays)
        try:
            folder.mkdir(exist_ok=True, mode=0o700)
            _write(path, parts)
            _sync(self.root)
            self._checked[path] = (_stamp(path), self._parse_header(Frame(meta, {})))
        except OSError as error:
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise _cannot("write", folder, error) from error
        return size_of(parts)

    def commit(self, name: CheckpointName, keep: int) -> None:
        """Commits a checkpoint that all servers have prepared; keeps the newest `keep`.

        Raises:
            ShardError: The checkpoint was not prepared here.
        """
        folder = self.root / name.folder
        path = folder / self._shard(name.of)
        try:
            prepared = path.with_name(f"{path.name}.prepared")
            if prepared.exists() or not path.exists():
                prepared.rename(path)
                _sync(folder)
                if prepared in self._checked:
                    self._checked[path] = self._checked.pop(prepared)
        except OSError as error:
            raise _cannot("commit", path, error) from error
        self._prune(name, keep)

    # -- reading -----------------------------------------------------------------------------

    def checkpoints(self) -> list[StoredCheckpoint]:
        """Returns the complete checkpoints, oldest first.

        A checkpoint that another number of servers wrote is complete if all its files are in this
        directory.
        """
        checkpoints = []
        for name, folder in self._folders():
            if name.of == self._of:
                checkpoint = self._check(self._path(folder, self._index, name.of))
            else:
                parts = [
                    self._check(self._path(folder, index, name.of)) for index in range(name.of)
                ]
                checkpoint = parts[0] if all(part is not None for part in parts) else None
            if checkpoint is not None:
                checkpoints.append(checkpoint._replace(name=name))
        return sorted(checkpoints, key=lambda stored: stored.name)

    def load(self, name: CheckpointName) -> list[Frame]:
        """Returns those files of a checkpoint that this server needs.

        Raises:
            ShardError: A file is missing or incomplete.
        """
        folder = self.root / name.folder
        indices: Iterable[int] = range(name.of) if name.of != self._of else [self._index]
        return [_read(self._path(folder, index, name.of)) for index in indices]

    def load_shutdown_checkpoint(self) -> Frame | None:
        """Returns this server's shutdown checkpoint; None if the newest generation has no complete one."""
        name = CheckpointName(self.generation(), SHUTDOWN_VERSION, self._of)
        path = self._path(self.root / name.folder, self._index, self._of)
        return None if self._check(path) is None else _read(path)

    def delete_shutdown_checkpoint(self) -> None:
        """Deletes the shutdown checkpoint, which is out of date once the server serves."""
        for name, folder in self._folders():
            if name.version == SHUTDOWN_VERSION and name.of == self._of:
                self._remove(folder, self._index, name.of)

    # -- inside ------------------------------------------------------------------------------

    def _folders(self) -> list[tuple[CheckpointName, Path]]:
        """Returns the folders of checkpoints, with the number of servers that wrote the files.

        A folder with files of several numbers of servers is returned once for each number.
        """
        folders = set()
        for folder in self.root.iterdir():
            match = _FOLDER.fullmatch(folder.name)
            if match is None:
                continue
            files: list[Path] = []
            with contextlib.suppress(
                FileNotFoundError
            ):  # another server has just removed the folder
                files = list(folder.iterdir())
            for path in files:
                file = _FILE.fullmatch(path.name)
                if file is not None:
                    folders.add(
                        (CheckpointName(int(match[1]), int(match[2]), int(file[2])), folder)
                    )
        return sorted(folders)

    def _path(self, folder: Path, index: int, of: int) -> Path:
        """Returns the path of the committed file, or of the prepared file if there is none."""
        path = folder / f"shard-{index}-of-{of}"
        return path if path.exists() else path.with_name(f"{path.name}.prepared")

    def _check(self, path: Path) -> StoredCheckpoint | None:
        """Returns the checkpoint in a file, None if it is incomplete; cached until the file changes."""
        try:
            stamp = _stamp(path)
        except OSError:
            return None
        cached = self._checked.get(path)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        checkpoint = None
        try:
            checkpoint = self._parse_header(_read(path))
        except ShardError as error:
            log.warning(
                "invalid checkpoint file ignored", extra=keys(file=str(path), why=str(error))
            )
        self._checked[path] = (stamp, checkpoint)
        return checkpoint

    def _parse_header(self, frame: Frame) -> StoredCheckpoint:
        meta = frame.meta
        if meta.get("job") != self._job:
            raise ShardError(
                f"it belongs to job {meta.get('job')!r:.80}, this server to {self._job!r}"
            )
        try:
            name = CheckpointName(int(meta["generation"]), int(meta["version"]), int(meta["of"]))
            return StoredCheckpoint(
                name, shard_codec.counts_of(frame).records, shard_codec.model_of(frame)
            )
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise ShardError(f"its header is not a shard's: {error!r:.100}") from error

    def _prune(self, newest: CheckpointName, keep: int) -> None:
        """Removes the files of old checkpoints.

        If another number of servers wrote them, each server removes its share of the files.
        """
        names = [name for name, _ in self._folders()]
        own = [
            name
            for name in names
            if name.of == self._of and (self.root / name.folder / self._shard(name.of)).exists()
        ]
        stay = set(sorted(own)[-keep:])
        for name in names:
            if name >= newest or name in stay:
                continue
            # if another number of servers wrote the files, the current servers share the work
            indices = [number for number in range(name.of) if number % self._of == self._index]
            for index in [self._index] if name.of == self._of else indices:
                self._remove(self.root / name.folder, index, name.of)

    def _remove(self, folder: Path, index: int, of: int) -> None:
        for path in folder.glob(f"shard-{index}-of-{of}*"):
            path.unlink(missing_ok=True)
            self._checked.pop(path, None)
        with contextlib.suppress(OSError):  # other servers have files in it
            _sync(folder)
            folder.rmdir()
        _sync(self.root)

    def _shard(self, of: int) -> str:
        return f"shard-{self._index}-of-{of}"

    def _own(self, prefix: str) -> Path:
        return self.root / f"{prefix}-{self._index}-of-{self._of}"


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return _Stamp(stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _read(path: Path) -> Frame:
    """Reads and checks a file; its arrays are memory-mapped."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return frames.decode(memoryview(data))
    except OSError as error:
        raise _cannot("read", path, error) from error
    except ValueError as error:  # from an invalid frame, or an empty file
        raise ShardError(f"{path}: {error}") from error


def _write(path: Path, parts: Sequence[memoryview]) -> None:
    """Writes a file atomically."""
    part = path.with_name(f"{path.name}.writing-{secrets.token_hex(4)}")
    try:
        with part.open("wb") as file:
            for chunk in parts:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _make(folder: Path) -> None:
    """Creates a folder and its parents, and syncs their names to disk."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def _cannot(action: str, path: Path, error: OSError) -> ShardError:
    return ShardError(f"cannot {action} {path}: {error.strerror or error}")
