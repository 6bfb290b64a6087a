"""The journal on disk: what is in it after crashes, cuts, damage and full disks."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from master import journal
from master.books import Books
from master.errors import JournalError
from master.journal import Journal, line
from master.ledger import Ledger
from tests.master.books import ref, shape, who

COMMANDS = [{"do": "n", "n": number} for number in range(5)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A journal of five commands behind books."""
    found = Journal(tmp_path / "journal")
    found.read()
    found.replace({"job": "digits"})
    found.append(line(command) for command in COMMANDS)
    found.close()
    return tmp_path / "journal"


@contextmanager
def _reading(directory: Path) -> Iterator[Journal]:
    found = Journal(directory)
    try:
        yield found
    finally:
        found.close()


def test_what_was_written_is_read(directory: Path) -> None:
    """In order, behind the books."""
    with _reading(directory) as found:
        read = found.read()

    assert read.books == {"job": "digits"}
    assert list(read.commands) == COMMANDS
    assert not read.cut_bytes
    assert not read.empty


def test_a_journal_cut_anywhere_keeps_what_is_before(directory: Path) -> None:
    """At each byte of the file: whole commands before it, no error, and it can be written on."""
    path = directory / "journal-1.log"
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        with _reading(directory) as found:
            read = found.read()
            found.append([line({"do": "next"})])
            again = found.read()
        count = sum(end <= cut for end in ends)
        assert list(read.commands) == COMMANDS[:count]
        assert [*read.commands, {"do": "next"}] == list(again.commands)


def test_damage_ends_a_journal(directory: Path) -> None:
    """A bit that flipped is found by the checksum; what comes after is not trusted."""
    path = directory / "journal-1.log"
    data = bytearray(path.read_bytes())
    data[data.index(b'"n":2') + 4] ^= 1
    path.write_bytes(data)
    with _reading(directory) as found:
        read = found.read()

    assert list(read.commands) == COMMANDS[:2]
    assert read.cut_bytes > 0


@pytest.mark.parametrize("text", [b"\n", b"x\n", b"0123456z {}\n", b"00000000 {}\n", b"\xff" * 40])
def test_garbage_is_no_command(directory: Path, text: bytes) -> None:
    """Whatever it looks like."""
    with (directory / "journal-1.log").open("ab") as file:
        file.write(text)
    with _reading(directory) as found:
        assert list(found.read().commands) == COMMANDS


def test_damaged_books_fall_back_on_those_before(directory: Path) -> None:
    """With both journals behind them, nothing is lost."""
    with _reading(directory) as found:
        found.read()
        found.replace({"job": "digits", "later": True})
        found.append([line({"do": "last"})])
    (directory / "books-2.json").write_bytes(b"torn")
    with _reading(directory) as found:
        read = found.read()

    assert read.books == {"job": "digits"}
    assert list(read.commands) == [*COMMANDS, {"do": "last"}]


def test_no_books_that_can_be_read_are_an_error(directory: Path) -> None:
    """Starting from nothing would train everything again."""
    (directory / "books-1.json").write_bytes(b"torn")
    with _reading(directory) as found, pytest.raises(JournalError, match="restore or remove"):
        found.read()


def test_old_files_are_removed(directory: Path) -> None:
    """One pair before the newest is kept."""
    with _reading(directory) as found:
        found.read()
        for number in range(4):
            found.replace({"number": number})

    assert sorted(path.name for path in directory.iterdir()) == [
        "books-4.json",
        "books-5.json",
        "journal-4.log",
        "journal-5.log",
        "lock",
    ]


def test_one_master_at_a_time(directory: Path) -> None:
    """A second one is told what to do."""
    with _reading(directory), pytest.raises(JournalError, match="another master uses"):
        Journal(directory)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """In one line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"cannot use the journal in .*file/journal"):
        Journal(tmp_path / "file" / "journal")


@contextmanager
def full_disk(more: int, path: Path) -> Iterator[None]:
    """The operating system lets no file grow beyond `more` bytes after the end of this one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_nothing_half_written(directory: Path) -> None:
    """The write is an error, the file is as before, and later writes work."""
    path = directory / "journal-1.log"
    with _reading(directory) as found:
        found.read()
        before = path.read_bytes()
        with full_disk(10, path), pytest.raises(JournalError, match="cannot write the journal"):
            found.append([line({"do": "much", "text": "x" * 100})])
        assert path.read_bytes() == before
        found.append([line({"do": "more"})])
        assert list(found.read().commands) == [*COMMANDS, {"do": "more"}]


def test_books_that_do_not_fit_leave_the_journal_in_use(directory: Path) -> None:
    """Nothing of the new pair stays."""
    path = directory / "journal-1.log"
    with _reading(directory) as found:
        found.read()
        with full_disk(10, path), pytest.raises(JournalError):
            found.replace({"text": "x" * (path.stat().st_size + 100)})
        found.append([line({"do": "more"})])
        assert list(found.read().commands) == [*COMMANDS, {"do": "more"}]
    assert not list(directory.glob("*.part"))


def test_books_that_json_cannot_hold_leave_the_journal_in_use(directory: Path) -> None:
    """As where the disk is full."""
    with _reading(directory) as found:
        found.read()
        with pytest.raises(JournalError, match="as JSON"):
            found.replace({"n": 1 << 64})
        found.append([line({"do": "more"})])
        assert list(found.read().commands) == [*COMMANDS, {"do": "more"}]


def _books(directory: Path) -> Books:
    return Books(Ledger("digits"), directory)


def test_books_come_back_as_they_were(tmp_path: Path) -> None:
    """From the journal alone, without an orderly end."""
    first = _books(tmp_path)
    first.execute({"do": "describe", "name": "train", "shape": shape()})
    first.execute({"do": "join", **who("a")})
    leases = first.execute({"do": "work", **who("a"), "want": 2})["tasks"]
    first.execute({"do": "work", **who("a"), "done": [ref(leases[0])]})
    first.write(first.take())
    dumped = first.ledger.dump()
    os.close(first._journal._lock)  # noqa: SLF001 - as the kernel does with a killed process
    second = _books(tmp_path)

    assert second.ledger.dump() == dumped
    assert not second.is_new
    second.close()


def test_calls_that_bring_nothing_are_not_written(tmp_path: Path) -> None:
    """Trainers ask again and again when there is nothing to do."""
    books = _books(tmp_path)
    books.execute({"do": "describe", "name": "train", "shape": shape(records=10)})
    for name in "ab":
        books.execute({"do": "join", **who(name)})
    books.execute({"do": "work", **who("a"), "want": 1})
    books.write(books.take())
    books.execute({"do": "work", **who("b"), "want": 1})

    assert not books.waiting
    books.close()


def test_a_failed_write_is_undone_in_the_books(tmp_path: Path) -> None:
    """What nobody was told has not happened."""
    books = _books(tmp_path)
    books.execute({"do": "describe", "name": "train", "shape": shape()})
    books.execute({"do": "join", **who("a")})
    books.write(books.take())
    books.execute({"do": "work", **who("a"), "want": 2})
    with full_disk(3, tmp_path / "journal-1.log"), pytest.raises(JournalError):
        books.write(books.take())
    books.restore()

    assert books.ledger.datasets["train"].progress()["leased_tasks"] == 0
    books.close()


class Disk:
    """A directory as a power failure leaves it: of files and folders, what was synced."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._contents: dict[int, bytes] = {}
        self._entries: dict[str, int] = {}
        self._open: list[int] = []
        """Of all that was synced, so that no other file gets the same inode."""
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._sync)

    def _sync(self, descriptor: int) -> None:
        self._open.append(os.dup(descriptor))
        inodes = {path.stat().st_ino: path for path in self._directory.iterdir()}
        inode = os.fstat(descriptor).st_ino
        if inode == self._directory.stat().st_ino:
            self._entries = {path.name: number for number, path in inodes.items()}
        elif inode in inodes:
            self._contents[inode] = inodes[inode].read_bytes()

    def left(self, place: Path) -> Path:
        """Puts what is left there."""
        place.mkdir()
        for name, inode in self._entries.items():
            (place / name).write_bytes(self._contents.get(inode, b""))
        return place

    def close(self) -> None:
        """Files that were removed may go now."""
        for descriptor in self._open:
            os.close(descriptor)


@pytest.fixture(name="disk")
def _disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found = Disk(tmp_path / "journal", monkeypatch)
    yield found
    found.close()


def test_what_was_written_is_there_after_a_power_failure(disk: Disk, tmp_path: Path) -> None:
    """Whenever it comes: trainers were told that their work is booked."""
    books = _books(tmp_path / "journal")
    before = {"do": "describe", "name": "train", "shape": shape()}, {"do": "join", **who("a")}
    for number in range(8):
        books.execute(before[number] if number < 2 else {"do": "work", **who("a"), "want": 1})
        books.write(books.take())
        if number % 3 == 2:
            books.adopt(books.ledger)  # whole books in another pair of files
        again = _books(disk.left(tmp_path / f"after-{number}"))
        again.close()
        assert again.ledger.dump() == books.ledger.dump(), number
    books.close()


def test_books_of_another_job_are_refused(tmp_path: Path) -> None:
    """A directory belongs to one job."""
    _books(tmp_path).close()
    with pytest.raises(JournalError, match="name another directory"):
        Books(Ledger("mnist"), tmp_path)


def test_a_long_journal_becomes_books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a restart reads little."""
    monkeypatch.setattr(journal, "MOST_BYTES", 200)
    books = _books(tmp_path)
    books.execute({"do": "describe", "name": "train", "shape": shape()})
    books.write(books.take())
    books.execute({"do": "join", **who("a")})
    books.compact()  # something waits
    assert (tmp_path / "books-1.json").exists()
    books.write(books.take())
    books.compact()

    assert (tmp_path / "books-2.json").exists()
    assert (tmp_path / "journal-2.log").stat().st_size == 0
    books.close()
