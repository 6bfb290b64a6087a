"""Checkpoints on disk: one folder for each, in it a file for each server; whole or ignored.

    DIR/JOB/000003-0000000000001200/shard-0-of-2            generation, version; committed
    DIR/JOB/000003-0000000000001800/shard-0-of-2.prepared   whole, but perhaps not everywhere
    DIR/JOB/generation-0-of-2

A file is written under a third name, made durable, and renamed to `.prepared`; when all servers have
prepared, each commits. Servers may share the folder or have one each.
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

from pydantic import ValidationError

from pserver import contents, frames
from pserver.checkpoint import LAST, Kept, Name
from pserver.errors import ShardError
from pserver.frames import Body, Frame, Json
from runtime.logs import keys

log = logging.getLogger(__name__)

_FOLDER = re.compile(r"(\d{6,})-(\d{16})")
_FILE = re.compile(r"shard-(\d+)-of-(\d+)(\.prepared)?")


class _Stamp(NamedTuple):
    inode: int
    size: int
    changed_ns: int


class Store:
    """The files of one server. Used by one thread at a time."""

    def __init__(self, directory: Path, job: str, index: int, of: int) -> None:
        """Makes the folder if it is missing, and locks what is this server's.

        Raises:
            ShardError: It cannot be used, or another process serves the same part.
        """
        self.root = directory / job
        self._job, self._index, self._of = job, index, of
        self._checked: dict[Path, tuple[_Stamp, Kept | None]] = {}
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
                f"another parameter server {index} of {of} uses {self.root}: stop it, or name "
                "another folder with --checkpoints"
            ) from error
        for path in self.root.rglob(f"*-{index}-of-{of}*.writing-*"):  # of one that was killed
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Gives the folder back."""
        os.close(self._lock)

    # -- generations -------------------------------------------------------------------------

    def generation(self) -> int:
        """The newest that this server has served, or has a checkpoint of; 0 where there is none."""
        numbers = [name.generation for name, _ in self._folders()]
        with contextlib.suppress(OSError, ValueError):
            numbers.append(int(self._own("generation").read_text(encoding="ascii")))
        return max(numbers, default=0)

    def enter(self, generation: int) -> None:
        """Remembers a generation, before anything is served in it.

        Raises:
            ShardError: It cannot be written.
        """
        data = [memoryview(b"%d\n" % generation)]
        try:
            _write(self._own("generation"), data)
        except OSError as error:
            raise _cannot("write", self.root, error) from error

    # -- writing -----------------------------------------------------------------------------

    def prepare(self, name: Name, meta: Json, arrays: Mapping[str, Body]) -> int:
        """Writes this server's part, down to the disk.

        Args:
            name: Of the checkpoint.
            meta: As `pserver.contents` gives it.
            arrays: Likewise.

        Returns:
            Its bytes.

        Raises:
            ShardError: It could not be written; nothing of it is left.
        """
        folder = self.root / name.folder
        path = folder / f"{self._shard(name.of)}.prepared"
        parts = frames.encode(meta, arrays)
        try:
            folder.mkdir(exist_ok=True, mode=0o700)
            _write(path, parts)
            _sync(self.root)
            self._checked[path] = (_stamp(path), self._kept(Frame(meta, {})))
        except OSError as error:
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise _cannot("write", folder, error) from error
        return frames.size_of(parts)

    def commit(self, name: Name, keep: int) -> None:
        """All servers have prepared it; older ones go but for so many.

        Raises:
            ShardError: It was not prepared here.
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

    def have(self) -> list[Kept]:
        """Whole checkpoints, oldest first; of other numbers of servers where all files are here."""
        found = []
        for name, folder in self._folders():
            if name.of == self._of:
                kept = self._check(self._path(folder, self._index, name.of))
            else:
                parts = [self._check(self._path(folder, one, name.of)) for one in range(name.of)]
                kept = parts[0] if all(part is not None for part in parts) else None
            if kept is not None:
                found.append(kept._replace(name=name))
        return sorted(found, key=lambda one: one.name)

    def load(self, name: Name) -> list[Frame]:
        """The files that this server needs of a checkpoint.

        Raises:
            ShardError: One of them is not whole.
        """
        folder = self.root / name.folder
        indices: Iterable[int] = range(name.of) if name.of != self._of else [self._index]
        return [_read(self._path(folder, index, name.of)) for index in indices]

    def last(self) -> Frame | None:
        """What this server wrote when it ended, if it served the newest generation then."""
        name = Name(self.generation(), LAST, self._of)
        path = self._path(self.root / name.folder, self._index, self._of)
        return None if self._check(path) is None else _read(path)

    def forget_last(self) -> None:
        """From here on it would be too old."""
        for name, folder in self._folders():
            if name.version == LAST and name.of == self._of:
                self._remove(folder, self._index, name.of)

    # -- inside ------------------------------------------------------------------------------

    def _folders(self) -> list[tuple[Name, Path]]:
        """Each folder, once for each number of servers that has files in it."""
        found = set()
        for folder in self.root.iterdir():
            match = _FOLDER.fullmatch(folder.name)
            if match is None:
                continue
            for path in folder.iterdir():
                file = _FILE.fullmatch(path.name)
                if file is not None:
                    found.add((Name(int(match[1]), int(match[2]), int(file[2])), folder))
        return sorted(found)

    def _path(self, folder: Path, index: int, of: int) -> Path:
        """Committed, or else prepared."""
        path = folder / f"shard-{index}-of-{of}"
        return path if path.exists() else path.with_name(f"{path.name}.prepared")

    def _check(self, path: Path) -> Kept | None:
        """What a file holds, if it is whole; read once as long as it does not change."""
        try:
            stamp = _stamp(path)
        except OSError:
            return None
        known = self._checked.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        kept = None
        try:
            kept = self._kept(_read(path))
        except ShardError as error:
            log.warning(
                "part of a checkpoint is ignored", extra=keys(file=str(path), why=str(error))
            )
        self._checked[path] = (stamp, kept)
        return kept

    def _kept(self, frame: Frame) -> Kept:
        meta = frame.meta
        if meta.get("job") != self._job:
            raise ShardError(
                f"it is of job {meta.get('job')!r:.80}, this server is of {self._job!r}"
            )
        try:
            name = Name(int(meta["generation"]), int(meta["version"]), int(meta["of"]))
            return Kept(name, contents.counts_of(frame).records, contents.model_of(frame))
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise ShardError(f"its header is not a shard's: {error!r:.100}") from error

    def _prune(self, newest: Name, keep: int) -> None:
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
            indices = [one for one in range(name.of) if one % self._of == self._index]
            for index in [self._index] if name.of == self._of else indices:
                self._remove(self.root / name.folder, index, name.of)

    def _remove(self, folder: Path, index: int, of: int) -> None:
        for path in folder.glob(f"shard-{index}-of-{of}*"):
            path.unlink(missing_ok=True)
            self._checked.pop(path, None)
        with contextlib.suppress(OSError):  # others have files in it
            _sync(folder)
            folder.rmdir()
        _sync(self.root)

    def _shard(self, of: int) -> str:
        return f"shard-{self._index}-of-{of}"

    def _own(self, what: str) -> Path:
        return self.root / f"{what}-{self._index}-of-{self._of}"


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return _Stamp(stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _read(path: Path) -> Frame:
    """A file, checked; its arrays stay on the disk until they are copied."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return frames.decode(memoryview(data))
    except OSError as error:
        raise _cannot("read", path, error) from error
    except ValueError as error:  # a frame's, or an empty file's
        raise ShardError(f"{path}: {error}") from error


def _write(path: Path, parts: Sequence[memoryview]) -> None:
    """A file of this name, whole or not at all."""
    part = path.with_name(f"{path.name}.writing-{secrets.token_hex(4)}")
    try:
        with part.open("wb") as file:
            for each in parts:
                file.write(each)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _make(folder: Path) -> None:
    """A folder, and those above it, whose names are on the disk as well as they."""
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


def _cannot(act: str, path: Path, error: OSError) -> ShardError:
    return ShardError(f"cannot {act} {path}: {error.strerror or error}")
