"""The journal on disk after crashes, cuts, damage and full disks."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from master import journal
from master.commands import Describe, Join, Work, from_json
from master.durable_ledger import DurableLedger
from master.errors import JournalError
from master.journal import Journal, line
from master.ledger import Ledger
from tests.master.ledger_calls import ref, shape, who
from tests.support.full_disks import files_up_to

COMMANDS = [{"do": "n", "n": number} for number in range(5)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A journal of five commands behind a snapshot."""
    open_journal = Journal(tmp_path / "journal")
    open_journal.read()
    open_journal.replace({"job": "digits"})
    open_journal.append(line(command) for command in COMMANDS)
    open_journal.close()
    return tmp_path / "journal"


@contextmanager
def _reading(directory: Path) -> Iterator[Journal]:
    open_journal = Journal(directory)
    try:
        yield open_journal
    finally:
        open_journal.close()


def test_what_was_written_is_read(directory: Path) -> None:
    """In order, behind the snapshot."""
    with _reading(directory) as open_journal:
        read = open_journal.read()

    assert read.snapshot == {"job": "digits"}
    assert list(read.commands) == COMMANDS
    assert not read.cut_bytes


def test_a_journal_cut_anywhere_keeps_what_is_before(directory: Path) -> None:
    """At each byte of the file: intact commands before it, no error, and it is writable."""
    path = directory / "journal-1.log"
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        with _reading(directory) as open_journal:
            read = open_journal.read()
            open_journal.append([line({"do": "next"})])
            again = open_journal.read()
        count = sum(end <= cut for end in ends)
        assert list(read.commands) == COMMANDS[:count]
        assert [*read.commands, {"do": "next"}] == list(again.commands)


def test_damage_ends_a_journal(directory: Path) -> None:
    """The checksum finds a bit that flipped; later lines are not trusted."""
    path = directory / "journal-1.log"
    data = bytearray(path.read_bytes())
    data[data.index(b'"n":2') + 4] ^= 1
    path.write_bytes(data)
    with _reading(directory) as open_journal:
        read = open_journal.read()

    assert list(read.commands) == COMMANDS[:2]
    assert read.cut_bytes > 0


@pytest.mark.parametrize("text", [b"\n", b"x\n", b"0123456z {}\n", b"00000000 {}\n", b"\xff" * 40])
def test_garbage_is_no_command(directory: Path, text: bytes) -> None:
    """In all its forms."""
    with (directory / "journal-1.log").open("ab") as file:
        file.write(text)
    with _reading(directory) as open_journal:
        assert list(open_journal.read().commands) == COMMANDS


def test_a_damaged_snapshot_falls_back_on_the_previous_one(directory: Path) -> None:
    """With both journals behind them, nothing is lost."""
    with _reading(directory) as open_journal:
        open_journal.read()
        open_journal.replace({"job": "digits", "later": True})
        open_journal.append([line({"do": "last"})])
    (directory / "books-2.json").write_bytes(b"torn")
    with _reading(directory) as open_journal:
        read = open_journal.read()

    assert read.snapshot == {"job": "digits"}
    assert list(read.commands) == [*COMMANDS, {"do": "last"}]


def test_no_readable_snapshot_is_an_error(directory: Path) -> None:
    """An empty start would train everything again."""
    (directory / "books-1.json").write_bytes(b"torn")
    with (
        _reading(directory) as open_journal,
        pytest.raises(JournalError, match="restore or remove"),
    ):
        open_journal.read()


def test_old_files_are_removed(directory: Path) -> None:
    """One pair before the newest is kept."""
    with _reading(directory) as open_journal:
        open_journal.read()
        for number in range(4):
            open_journal.replace({"number": number})

    assert sorted(path.name for path in directory.iterdir()) == [
        "books-4.json",
        "books-5.json",
        "journal-4.log",
        "journal-5.log",
        "lock",
    ]


def test_one_master_at_a_time(directory: Path) -> None:
    """The error of a second one says what to do."""
    with _reading(directory), pytest.raises(JournalError, match="another master uses"):
        Journal(directory)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """In one line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"cannot use the journal in .*file/journal"):
        Journal(tmp_path / "file" / "journal")


@contextmanager
def full_disk(spare_bytes: int, path: Path) -> Iterator[None]:
    """The operating system limits files to `spare_bytes` bytes more than the size of this one."""
    with files_up_to(path.stat().st_size + spare_bytes):
        yield


def test_a_full_disk_leaves_nothing_half_written(directory: Path) -> None:
    """The write is an error, the file does not change, and later writes work."""
    path = directory / "journal-1.log"
    with _reading(directory) as open_journal:
        open_journal.read()
        before = path.read_bytes()
        named = f"cannot write the journal in {re.escape(str(directory))}: File too large"
        with full_disk(10, path), pytest.raises(JournalError, match=named):
            open_journal.append([line({"do": "much", "text": "x" * 100})])
        assert path.read_bytes() == before
        open_journal.append([line({"do": "more"})])
        assert list(open_journal.read().commands) == [*COMMANDS, {"do": "more"}]


def test_a_snapshot_that_does_not_fit_leaves_the_journal_in_use(directory: Path) -> None:
    """No file of the new pair stays."""
    path = directory / "journal-1.log"
    with _reading(directory) as open_journal:
        open_journal.read()
        with full_disk(10, path), pytest.raises(JournalError):
            open_journal.replace({"text": "x" * (path.stat().st_size + 100)})
        open_journal.append([line({"do": "more"})])
        assert list(open_journal.read().commands) == [*COMMANDS, {"do": "more"}]
    assert not list(directory.glob("*.part"))


def test_a_snapshot_that_json_cannot_hold_leaves_the_journal_in_use(directory: Path) -> None:
    """As where the disk is full."""
    with _reading(directory) as open_journal:
        open_journal.read()
        with pytest.raises(JournalError, match="as JSON"):
            open_journal.replace({"n": 1 << 64})
        open_journal.append([line({"do": "more"})])
        assert list(open_journal.read().commands) == [*COMMANDS, {"do": "more"}]


def _open(directory: Path) -> DurableLedger:
    return DurableLedger(Ledger("digits"), directory)


def test_a_ledger_is_restored_as_it_was(tmp_path: Path) -> None:
    """From the journal alone, without an orderly end."""
    first = _open(tmp_path)
    first.execute(Describe("train", shape()))
    first.execute(Join(**who("a")))
    leases = first.execute(Work(**who("a"), want=2))["tasks"]
    first.execute(from_json({"do": "work", **who("a"), "done": [ref(leases[0])]}))
    first.write(first.take_pending())
    dumped = first.ledger.dump()
    os.close(first._journal._lock)  # noqa: SLF001 - as the kernel does with a killed process
    second = _open(tmp_path)

    assert second.ledger.dump() == dumped
    assert not second.is_new
    second.close()


def test_calls_that_bring_nothing_are_not_written(tmp_path: Path) -> None:
    """Trainers call repeatedly when there is nothing to do."""
    durable_ledger = _open(tmp_path)
    durable_ledger.execute(Describe("train", shape(records=10)))
    for name in "ab":
        durable_ledger.execute(Join(**who(name)))
    durable_ledger.execute(Work(**who("a"), want=1))
    durable_ledger.write(durable_ledger.take_pending())
    durable_ledger.execute(Work(**who("b"), want=1))

    assert not durable_ledger.has_pending
    durable_ledger.close()


def test_a_failed_write_is_undone_in_the_ledger(tmp_path: Path) -> None:
    """What was not answered has not happened."""
    durable_ledger = _open(tmp_path)
    durable_ledger.execute(Describe("train", shape()))
    durable_ledger.execute(Join(**who("a")))
    durable_ledger.write(durable_ledger.take_pending())
    durable_ledger.execute(Work(**who("a"), want=2))
    with full_disk(3, tmp_path / "journal-1.log"), pytest.raises(JournalError):
        durable_ledger.write(durable_ledger.take_pending())
    durable_ledger.reload()

    assert durable_ledger.ledger.datasets["train"].progress()["leased_tasks"] == 0
    durable_ledger.close()


class Disk:
    """A directory as a power failure leaves it: only the synced contents of files and folders."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._contents: dict[int, bytes] = {}
        self._entries: dict[str, int] = {}
        self._open: list[int] = []
        """Descriptors of all synced files, so that no other file gets the same inode."""
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
        """Restores what is left in another folder."""
        place.mkdir()
        for name, inode in self._entries.items():
            (place / name).write_bytes(self._contents.get(inode, b""))
        return place

    def close(self) -> None:
        """Lets the system delete files that were removed."""
        for descriptor in self._open:
            os.close(descriptor)


@pytest.fixture(name="disk")
def _disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path / "journal", monkeypatch)
    yield disk
    disk.close()


def test_what_was_written_is_there_after_a_power_failure(disk: Disk, tmp_path: Path) -> None:
    """Whenever it happens: trainers have an answer that their work is recorded."""
    durable_ledger = _open(tmp_path / "journal")
    before = Describe("train", shape()), Join(**who("a"))
    for number in range(8):
        durable_ledger.execute(before[number] if number < 2 else Work(**who("a"), want=1))
        durable_ledger.write(durable_ledger.take_pending())
        if number % 3 == 2:
            durable_ledger.adopt(durable_ledger.ledger)  # a snapshot, in another pair of files
        again = _open(disk.left(tmp_path / f"after-{number}"))
        again.close()
        assert again.ledger.dump() == durable_ledger.ledger.dump(), number
    durable_ledger.close()


def test_a_snapshot_of_another_job_is_refused(tmp_path: Path) -> None:
    """A directory belongs to one job."""
    _open(tmp_path).close()
    with pytest.raises(JournalError, match="name another directory"):
        DurableLedger(Ledger("mnist"), tmp_path)


def test_only_its_user_reads_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the umask: snapshots name files and trainers, also after a compaction."""
    monkeypatch.setattr(journal, "MAX_BYTES", 1)
    directory = tmp_path / "journal"
    before = os.umask(0)
    try:
        durable_ledger = _open(directory)
        durable_ledger.execute(Describe("train", shape()))
        durable_ledger.write(durable_ledger.take_pending())
        durable_ledger.compact()
    finally:
        os.umask(before)

    files = sorted(path.name for path in directory.iterdir())
    assert {name.partition("-")[0] for name in files} == {"books", "journal", "lock"}
    assert [name for name in files if (directory / name).stat().st_mode & 0o077] == []
    assert directory.stat().st_mode & 0o077 == 0
    durable_ledger.close()


def test_a_long_journal_becomes_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a restart reads little."""
    monkeypatch.setattr(journal, "MAX_BYTES", 200)
    durable_ledger = _open(tmp_path)
    durable_ledger.execute(Describe("train", shape()))
    durable_ledger.write(durable_ledger.take_pending())
    durable_ledger.execute(Join(**who("a")))
    durable_ledger.compact()  # a command waits
    assert (tmp_path / "books-1.json").exists()
    durable_ledger.write(durable_ledger.take_pending())
    durable_ledger.compact()

    assert (tmp_path / "books-2.json").exists()
    assert (tmp_path / "journal-2.log").stat().st_size == 0
    durable_ledger.close()
