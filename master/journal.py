"""The journal on disk: commands in an append-only file, and snapshots of the ledger.

Each command is a line with a checksum. A truncated or damaged line ends the journal, and the lines
before it are used. Files come in numbered pairs: `journal-7.log` continues from the snapshot
`books-7.json`. The previous pair is kept in case the newest snapshot cannot be read.
"""

import fcntl
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import orjson

from master.errors import JournalError
from runtime.call_checks import Json
from runtime.logs import keys

log = logging.getLogger(__name__)

MAX_BYTES = 2 << 20
"""A longer journal is replaced with a snapshot. Replaying commands takes 0.3 to 0.4 s for each MiB,
and a master that was killed must serve again within 3 s."""
_KEPT_PAIRS = 2
"""Pairs of files that are kept."""


@dataclass(frozen=True, slots=True)
class JournalContents:
    """The contents of a journal's directory."""

    snapshot: Json | None
    """The ledger at the beginning of the journal; None if it was empty."""
    commands: tuple[Json, ...]
    cut_bytes: int
    """Unusable bytes at the end, from an interrupted write."""


class Journal:
    """A directory of journal and snapshot files, for one process and one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """Creates the directory if it is missing, and locks it.

        Raises:
            JournalError: The directory cannot be written, or another master uses it.
        """
        self._directory = directory
        self._number = 0
        self._file = -1
        self.size = 0
        """Size of the current journal file in bytes."""
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _cannot("use", directory, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise JournalError(
                f"another master uses the journal in {directory}: stop it, or name another directory"
            ) from error

    def read(self) -> JournalContents:
        """Reads the snapshot and all commands, and cuts off an unusable end.

        Raises:
            JournalError: A file cannot be read, or no snapshot is intact.
        """
        self._close_file()
        try:
            return self._read()
        except OSError as error:
            raise _cannot("read", self._directory, error) from error

    def append(self, commands: Iterable[bytes]) -> None:
        """Writes commands, each formatted by `line`; returns when they are on the disk.

        Raises:
            JournalError: The commands are not on the disk, and no part of them is in the file.
        """
        data = b"".join(commands)
        try:
            self._write(data)
            os.fdatasync(self._file)
        except OSError as error:
            self._undo()
            raise _cannot("write", self._directory, error) from error
        self.size += len(data)

    def replace(self, snapshot: Json) -> None:
        """Starts a new journal from a snapshot.

        Raises:
            JournalError: The snapshot cannot be written; the old journal stays in use.
        """
        text = _framed(as_json(snapshot))
        number = self._number + 1
        path = self._path("books", number)
        part = path.with_suffix(".part")
        try:
            with open(part, "wb", opener=_private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh = os.open(self._path("journal", number), _FLAGS | os.O_TRUNC, 0o600)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise _cannot("write", self._directory, error) from error
        try:
            part.replace(path)  # this snapshot counts from now on, so its journal must exist
            self._sync_directory()
        except OSError as error:
            os.close(fresh)
            for unfinished in (part, path):
                unfinished.unlink(missing_ok=True)  # otherwise a restart skips the old journal
            raise _cannot("write", self._directory, error) from error
        self._close_file()
        self._file, self._number, self.size = fresh, number, 0
        self._prune()

    def close(self) -> None:
        """Closes the files and unlocks the directory."""
        self._close_file()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read(self) -> JournalContents:
        numbers = sorted(
            (int(path.stem.partition("-")[2]) for path in self._directory.glob("books-*.json")),
            reverse=True,
        )
        for number in numbers:
            snapshots, _ = _lines(self._path("books", number).read_bytes())
            if snapshots:
                commands, cut = self._open(number)
                for later in sorted(n for n in numbers if n > number):
                    later_commands, cut = self._open(later)
                    commands += later_commands
                return JournalContents(snapshots[0], tuple(commands), cut)
            log.warning("snapshot cannot be read", extra=keys(file=f"books-{number}.json"))
        if numbers:
            raise JournalError(
                f"no snapshot in {self._directory} can be read: restore or remove the files"
            )
        commands, cut = self._open(0)
        return JournalContents(None, tuple(commands), cut)

    def _open(self, number: int) -> tuple[list[Json], int]:
        """Opens a journal for appending, truncated after its last intact command.

        Returns:
            The commands, and the number of bytes that were cut off.
        """
        self._close_file()
        self._file = os.open(self._path("journal", number), _FLAGS, 0o600)
        self._number = number
        data = self._path("journal", number).read_bytes()
        commands, used = _lines(data)
        self.size = used
        if used < len(data):
            log.warning(
                "journal is damaged: commands before the damage are used",
                extra=keys(commands=len(commands), cut_bytes=len(data) - used),
            )
            os.ftruncate(self._file, used)
        return commands, len(data) - used

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _undo(self) -> None:
        try:
            os.ftruncate(self._file, self.size)
        except OSError:
            log.exception("journal cannot be truncated")

    def _prune(self) -> None:
        for kind, suffix in (("books", "json"), ("journal", "log")):
            for path in self._directory.glob(f"{kind}-*.{suffix}"):
                if int(path.stem.partition("-")[2]) <= self._number - _KEPT_PAIRS:
                    path.unlink(missing_ok=True)

    def _path(self, kind: str, number: int) -> Path:
        return self._directory / f"{kind}-{number}.{'json' if kind == 'books' else 'log'}"

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _private(path: str, flags: int) -> int:
    """Opens a file that only this user can read, because a snapshot names files and trainers."""
    return os.open(path, flags, 0o600)


def as_json(snapshot: Json) -> bytes:
    """Returns a snapshot as JSON text.

    Raises:
        JournalError: The snapshot has values that JSON cannot express.
    """
    try:
        return orjson.dumps(snapshot)
    except TypeError as error:
        raise JournalError(f"the snapshot cannot be written as JSON: {error}") from error


_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def line(value: Json) -> bytes:
    """Returns a value as a line of the journal: checksum, space, JSON, line feed."""
    return _framed(orjson.dumps(value))


def _framed(text: bytes) -> bytes:
    return b"%08x %s\n" % (crc32(text), text)


def _lines(data: bytes) -> tuple[list[Json], int]:
    """Returns the values of the intact lines, and the length of these lines in bytes."""
    values: list[Json] = []
    used = 0
    while (end := data.find(b"\n", used)) >= 0:
        value = _value(data[used:end])
        if value is None:
            break
        values.append(value)
        used = end + 1
    return values, used


def _value(text: bytes) -> Json | None:
    if len(text) < len("00000000 {}") or text[8:9] != b" ":
        return None
    try:
        if int(text[:8], 16) != crc32(text[9:]):
            return None
        value = orjson.loads(text[9:])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _cannot(action: str, directory: Path, error: OSError) -> JournalError:
    return JournalError(f"cannot {action} the journal in {directory}: {error.strerror or error}")
