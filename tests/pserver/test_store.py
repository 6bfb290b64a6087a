"""Checkpoints on disk: whole ones are found, all others are as if they were not there."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pserver import contents, frames
from pserver.checkpoint import LAST, Name
from pserver.errors import ShardError
from pserver.store import Store
from tests.pserver.worlds import push
from tests.pserver.worlds import shard as made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Of server 0 of 2."""
    found = Store(tmp_path, "digits", 0, 2)
    yield found
    found.close()


def write(store: Store, name: Name, index: int = 0) -> None:
    """Prepares a checkpoint of one push."""
    shard = made()
    shard.push(push(1))
    about = {"job": store.root.name, "index": index, **name._asdict()}
    store.prepare(name, *contents.taken(shard, about))


def test_what_was_prepared_is_had_and_read(store: Store) -> None:
    """Before it is committed, and after."""
    name = Name(1, 20, 2)
    write(store, name)
    prepared = store.have()
    store.commit(name, 3)
    store.commit(name, 3)

    assert [one.name for one in prepared] == [one.name for one in store.have()] == [name]
    assert prepared[0].records == 10
    frame = store.load(name)[0]
    assert frame.arrays["dense"].tolist() == [-1.0] * 8
    assert [path.name for path in (store.root / name.folder).iterdir()] == ["shard-0-of-2"]


def test_another_process_has_the_same(store: Store, tmp_path: Path) -> None:
    """It reads and checks every byte."""
    write(store, Name(1, 20, 2))
    store.close()
    again = Store(tmp_path, "digits", 0, 2)

    assert [one.name for one in again.have()] == [Name(1, 20, 2)]
    assert again.generation() == 1
    again.close()
    store._lock = os.open(tmp_path, os.O_RDONLY)  # noqa: SLF001 - the fixture closes it


@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "text", "gone"])
def test_a_file_that_is_not_whole_is_ignored(
    store: Store, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The one before counts; a line says which file it was, once."""
    write(store, Name(1, 10, 2))
    write(store, Name(1, 20, 2))
    path = store.root / Name(1, 20, 2).folder / "shard-0-of-2.prepared"
    raw = bytearray(path.read_bytes())
    if harm == "cut":
        path.write_bytes(raw[:-1])
    elif harm == "changed":
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "text":
        path.write_text("hello")
    elif harm == "gone":
        path.unlink()
    for _ in range(2):
        assert [one.name for one in store.have()] == [Name(1, 10, 2)]

    assert len(caplog.records) == (harm != "gone")
    with pytest.raises(ShardError):
        store.load(Name(1, 20, 2))


@pytest.mark.parametrize("changes", [{"job": "letters"}, {"of": None}, {"model": 3}])
def test_a_whole_file_that_is_not_this_job_s_is_ignored(
    store: Store, changes: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has put it there."""
    write(store, Name(1, 10, 2))
    path = store.root / Name(1, 10, 2).folder / "shard-0-of-2.prepared"
    frame = store.load(Name(1, 10, 2))[0]
    path.write_bytes(b"".join(frames.encode(frame.meta | changes, frame.arrays)))

    assert store.have() == []
    assert len(caplog.records) == 1


def test_what_a_killed_writer_left_goes(store: Store, tmp_path: Path) -> None:
    """A file under its third name."""
    folder = store.root / Name(1, 10, 2).folder
    folder.mkdir()
    (folder / "shard-0-of-2.prepared.writing-0abc").write_bytes(b"half")
    (folder / "shard-1-of-2.prepared.writing-0abc").write_bytes(b"another's")
    store.close()
    again = Store(tmp_path, "digits", 0, 2)

    assert [path.name for path in folder.iterdir()] == ["shard-1-of-2.prepared.writing-0abc"]
    assert again.have() == []
    again.close()
    store._lock = os.open(tmp_path, os.O_RDONLY)  # noqa: SLF001 - the fixture closes it


def test_old_ones_go_when_a_newer_one_is_committed(store: Store) -> None:
    """Not before: until then it may be the only one that all servers have."""
    names = [Name(1, version, 2) for version in (10, 20, 30, 40)]
    for name in names[:3]:
        write(store, name)
        store.commit(name, 2)
    write(store, names[3])
    assert [one.name for one in store.have()] == names[1:]
    store.commit(names[3], 2)

    assert [one.name for one in store.have()] == names[2:]
    assert len([path for path in store.root.iterdir() if path.is_dir()]) == 2


def test_a_prepared_one_that_nobody_committed_goes_later(store: Store) -> None:
    """Another server could not write its part."""
    write(store, Name(1, 10, 2))
    write(store, Name(1, 20, 2))
    store.commit(Name(1, 20, 2), 3)

    assert [one.name for one in store.have()] == [Name(1, 20, 2)]


def test_a_commit_leaves_alone_what_is_newer(store: Store) -> None:
    """Another trainer has had it prepared meanwhile: it is committed and read as any other."""
    names = [Name(1, version, 2) for version in (10, 20, 30)]
    write(store, names[0])
    store.commit(names[0], 1)
    for name in names[1:]:
        write(store, name)
    store.commit(names[1], 1)
    assert [one.name for one in store.have()] == names[1:]
    store.commit(names[2], 1)

    assert [one.name for one in store.have()] == names[2:]
    assert len(store.load(names[2])) == 1


def test_what_was_never_prepared_cannot_be_committed(store: Store) -> None:
    """The server began anew in between."""
    with pytest.raises(ShardError, match="cannot commit"):
        store.commit(Name(1, 10, 2), 3)


def test_checkpoints_of_another_number_of_servers_need_all_files(
    store: Store, tmp_path: Path
) -> None:
    """All of them read; and they go once there is a newer one."""
    name = Name(1, 10, 3)
    for index in range(3):
        other = Store(tmp_path, "digits", index, 3)
        write(other, name, index)
        if index == 1:
            assert store.have() == []
        other.commit(name, 3)
        other.close()

    assert [one.name for one in store.have()] == [name]
    assert len(store.load(name)) == 3
    write(store, Name(2, 5, 2))
    assert [one.name for one in store.have()] == [name, Name(2, 5, 2)]
    store.commit(Name(2, 5, 2), 3)
    assert [one.name for one in store.have()] == [Name(2, 5, 2)]
    assert [path.name for path in (store.root / name.folder).iterdir()] == ["shard-1-of-3"]


def test_what_was_written_at_the_end_is_used_once(store: Store) -> None:
    """And only where no newer generation was served since."""
    assert store.last() is None
    write(store, Name(3, LAST, 2))
    found = store.last()
    assert found is not None
    store.enter(4)
    assert store.last() is None
    store.forget_last()

    assert store.have() == []
    assert store.generation() == 4


def test_two_processes_cannot_serve_the_same(store: Store, tmp_path: Path) -> None:
    """Of another server or job there may be as many as there are."""
    for index, job in ((1, "digits"), (0, "letters")):
        Store(tmp_path, job, index, 2).close()
    with pytest.raises(ShardError, match="another parameter server 0 of 2 uses"):
        Store(tmp_path, "digits", 0, 2)

    assert store.have() == []


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """One line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ShardError, match="cannot use"):
        Store(tmp_path / "file", "digits", 0, 1)


class Disk:
    """Remembers what was made durable; `fail` leaves only that, as a power failure may.

    A file's bytes are durable once it was synced, and its name once its folder was.
    """

    def __init__(self) -> None:
        self._files: dict[int, bytes] = {}
        self._folders: dict[Path, dict[str, int]] = {}

    def sync(self, number: int) -> None:
        """Instead of `os.fsync`."""
        path = Path(f"/proc/self/fd/{number}").readlink()
        if path.is_dir():
            self._folders[path] = {one.name: one.stat().st_ino for one in path.iterdir()}
        else:
            self._files[path.stat().st_ino] = path.read_bytes()

    def fail(self, folder: Path, copy: Path) -> None:
        """Writes what is left of a folder, which was there before, to another one."""
        copy.mkdir()
        for name, inode in self._folders.get(folder, {}).items():
            if folder / name in self._folders:
                self.fail(folder / name, copy / name)
            else:
                (copy / name).write_bytes(self._files.get(inode, b""))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Under the store."""
    found = Disk()
    monkeypatch.setattr(os, "fsync", found.sync)
    return found


def test_what_was_answered_survives_a_power_failure(disk: Disk, tmp_path: Path) -> None:
    """A part that was prepared, its commit, and the newest generation; in a folder that is new."""
    folder, name = tmp_path / "disk", Name(1, 10, 2)
    folder.mkdir()

    def left(copy: str) -> Store:
        disk.fail(folder, tmp_path / copy)
        return Store(tmp_path / copy / "new", "digits", 0, 2)

    with closing(Store(folder / "new", "digits", 0, 2)) as store:
        store.enter(1)
        with closing(left("entered")) as again:
            assert again.generation() == 1
        write(store, name)
        with closing(left("prepared")) as again:
            assert [one.name for one in again.have()] == [name]
            assert again.load(name)[0].arrays["dense"].tolist() == [-1.0] * 8
        store.commit(name, 3)
        with closing(left("committed")) as again:
            assert [path.name for path in (again.root / name.folder).iterdir()] == ["shard-0-of-2"]
            assert [one.name for one in again.have()] == [name]


def test_what_was_written_at_the_end_does_not_come_back_after_a_power_failure(
    disk: Disk, tmp_path: Path
) -> None:
    """It was used: going on there once more would lose pushes that nobody misses."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with closing(Store(folder, "digits", 0, 2)) as store:
        write(store, Name(3, LAST, 2))
        store.forget_last()
        disk.fail(folder, tmp_path / "left")
    with closing(Store(tmp_path / "left", "digits", 0, 2)) as again:
        assert again.have() == []
        assert again.last() is None


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Files may grow to 1 KiB and no further, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_leaves_nothing_behind(store: Store) -> None:
    """The folder is named; older checkpoints are whole."""
    shard = made()
    ids = np.arange(1000)
    shard.push(push(1, sparse={"words": (ids, np.ones((1000, 2), np.float32))}))
    name = Name(1, 10, 2)
    with pytest.raises(ShardError, match="cannot write"):
        store.prepare(name, *contents.taken(shard, {"job": "digits", "index": 0, **name._asdict()}))

    assert store.have() == []
    assert not (store.root / name.folder).exists()


def test_a_generation_that_cannot_be_written_is_said(store: Store) -> None:
    """The folder went away."""
    for path in store.root.iterdir():
        path.unlink()
    store.root.rmdir()
    with pytest.raises(ShardError, match="cannot write"):
        store.enter(2)
    store.root.mkdir()

    assert store.generation() == 0
