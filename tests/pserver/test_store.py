"""Checkpoints on disk: whole ones are found, all others are as if they were not there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pserver import frames, shard_codec
from pserver.checkpoint import SHUTDOWN_VERSION, CheckpointName
from pserver.errors import ShardError
from pserver.store import CheckpointStore
from tests.pserver.builders import make_shard, push
from tests.support.full_disks import files_up_to


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CheckpointStore]:
    """Of server 0 of 2."""
    opened = CheckpointStore(tmp_path, "digits", 0, 2)
    yield opened
    opened.close()


def write(store: CheckpointStore, name: CheckpointName, index: int = 0) -> None:
    """Prepares a checkpoint of one push."""
    shard = make_shard()
    shard.push(push(1))
    about = {"job": store.root.name, "index": index, **name._asdict()}
    store.prepare(name, *shard_codec.snapshot(shard, about))


def test_a_prepared_checkpoint_is_listed_and_read(store: CheckpointStore) -> None:
    """Before it is committed, and after."""
    name = CheckpointName(1, 20, 2)
    write(store, name)
    prepared = store.checkpoints()
    store.commit(name, 3)
    store.commit(name, 3)

    assert (
        [checkpoint.name for checkpoint in prepared]
        == [checkpoint.name for checkpoint in store.checkpoints()]
        == [name]
    )
    assert prepared[0].records == 10
    frame = store.load(name)[0]
    assert frame.arrays["dense"].tolist() == [-1.0] * 8
    assert [path.name for path in (store.root / name.folder).iterdir()] == ["shard-0-of-2"]


def test_what_it_wrote_itself_is_not_read_again(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard may have gigabytes; of files that are gone nothing is remembered."""
    read: list[Path] = []
    monkeypatch.setattr("pserver.store._read", read.append)
    names = [CheckpointName(1, version, 2) for version in (10, 20, 30)]
    for name in names:
        write(store, name)
        store.commit(name, 1)

    assert [checkpoint.name for checkpoint in store.checkpoints()] == names[2:]
    assert read == []
    assert len(store._checked) == 1  # noqa: SLF001 - else it would grow with every checkpoint


def test_a_file_that_somebody_has_replaced_is_read_again(store: CheckpointStore) -> None:
    """Whatever its size and time say: it is another file."""
    name = CheckpointName(1, 20, 2)
    write(store, name)
    store.commit(name, 3)
    path = store.root / name.folder / "shard-0-of-2"
    stat = path.stat()
    other = path.with_name("other")
    other.write_bytes(bytes(stat.st_size))
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)

    assert store.checkpoints() == []


def test_servers_that_start_together_make_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is faster."""
    root = tmp_path / "claim" / "digits"
    monkeypatch.setattr("pserver.store._sync", lambda _: root.mkdir(exist_ok=True))

    with closing(CheckpointStore(root.parent, "digits", 0, 2)) as store:
        assert store.root == root


def test_another_process_has_the_same(store: CheckpointStore, tmp_path: Path) -> None:
    """It reads and checks every byte."""
    write(store, CheckpointName(1, 20, 2))
    store.close()
    again = CheckpointStore(tmp_path, "digits", 0, 2)

    assert [checkpoint.name for checkpoint in again.checkpoints()] == [CheckpointName(1, 20, 2)]
    assert again.generation() == 1
    again.close()
    store._lock = os.open(tmp_path, os.O_RDONLY)  # noqa: SLF001 - the fixture closes it


@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "text", "gone"])
def test_a_file_that_is_not_whole_is_ignored(
    store: CheckpointStore, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The one before counts; a line says which file it was, once."""
    write(store, CheckpointName(1, 10, 2))
    write(store, CheckpointName(1, 20, 2))
    path = store.root / CheckpointName(1, 20, 2).folder / "shard-0-of-2.prepared"
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
        assert [checkpoint.name for checkpoint in store.checkpoints()] == [CheckpointName(1, 10, 2)]

    assert len(caplog.records) == (harm != "gone")
    with pytest.raises(ShardError):
        store.load(CheckpointName(1, 20, 2))


@pytest.mark.parametrize("changes", [{"job": "letters"}, {"of": None}, {"model": 3}])
def test_a_whole_file_that_is_not_this_job_s_is_ignored(
    store: CheckpointStore, changes: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has put it there."""
    write(store, CheckpointName(1, 10, 2))
    path = store.root / CheckpointName(1, 10, 2).folder / "shard-0-of-2.prepared"
    frame = store.load(CheckpointName(1, 10, 2))[0]
    path.write_bytes(b"".join(frames.encode(frame.meta | changes, frame.arrays)))

    assert store.checkpoints() == []
    assert len(caplog.records) == 1


def test_what_a_killed_writer_left_goes(store: CheckpointStore, tmp_path: Path) -> None:
    """A file under its third name."""
    folder = store.root / CheckpointName(1, 10, 2).folder
    folder.mkdir()
    (folder / "shard-0-of-2.prepared.writing-0abc").write_bytes(b"half")
    (folder / "shard-1-of-2.prepared.writing-0abc").write_bytes(b"another's")
    store.close()
    again = CheckpointStore(tmp_path, "digits", 0, 2)

    assert [path.name for path in folder.iterdir()] == ["shard-1-of-2.prepared.writing-0abc"]
    assert again.checkpoints() == []
    again.close()
    store._lock = os.open(tmp_path, os.O_RDONLY)  # noqa: SLF001 - the fixture closes it


def test_old_ones_go_when_a_newer_one_is_committed(store: CheckpointStore) -> None:
    """Not before: until then it may be the only one that all servers have."""
    names = [CheckpointName(1, version, 2) for version in (10, 20, 30, 40)]
    for name in names[:3]:
        write(store, name)
        store.commit(name, 2)
    write(store, names[3])
    assert [checkpoint.name for checkpoint in store.checkpoints()] == names[1:]
    store.commit(names[3], 2)

    assert [checkpoint.name for checkpoint in store.checkpoints()] == names[2:]
    assert len([path for path in store.root.iterdir() if path.is_dir()]) == 2


def test_a_prepared_one_that_nobody_committed_goes_later(store: CheckpointStore) -> None:
    """Another server could not write its part."""
    write(store, CheckpointName(1, 10, 2))
    write(store, CheckpointName(1, 20, 2))
    store.commit(CheckpointName(1, 20, 2), 3)

    assert [checkpoint.name for checkpoint in store.checkpoints()] == [CheckpointName(1, 20, 2)]


def test_a_folder_that_another_server_removes_at_this_moment_is_left_out(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that share a folder commit at the same time, and the last of them removes the old one."""
    old, new = CheckpointName(1, 10, 2), CheckpointName(1, 20, 2)
    for name in (old, new):
        write(store, name)
    iterate = Path.iterdir

    def remove_before(path: Path) -> Iterator[Path]:
        if path.name == old.folder:
            shutil.rmtree(path, ignore_errors=True)
        return iterate(path)

    monkeypatch.setattr(Path, "iterdir", remove_before)
    store.commit(new, 1)

    assert [checkpoint.name for checkpoint in store.checkpoints()] == [new]


def test_a_commit_leaves_alone_what_is_newer(store: CheckpointStore) -> None:
    """Another trainer has had it prepared meanwhile: it is committed and read as any other."""
    names = [CheckpointName(1, version, 2) for version in (10, 20, 30)]
    write(store, names[0])
    store.commit(names[0], 1)
    for name in names[1:]:
        write(store, name)
    store.commit(names[1], 1)
    assert [checkpoint.name for checkpoint in store.checkpoints()] == names[1:]
    store.commit(names[2], 1)

    assert [checkpoint.name for checkpoint in store.checkpoints()] == names[2:]
    assert len(store.load(names[2])) == 1


def test_what_was_never_prepared_cannot_be_committed(store: CheckpointStore) -> None:
    """The server restarted in between."""
    with pytest.raises(ShardError, match="cannot commit"):
        store.commit(CheckpointName(1, 10, 2), 3)


def test_checkpoints_of_another_number_of_servers_need_all_files(
    store: CheckpointStore, tmp_path: Path
) -> None:
    """All of them read; and they go once there is a newer one."""
    name = CheckpointName(1, 10, 3)
    for index in range(3):
        other = CheckpointStore(tmp_path, "digits", index, 3)
        write(other, name, index)
        if index == 1:
            assert store.checkpoints() == []
        other.commit(name, 3)
        other.close()

    assert [checkpoint.name for checkpoint in store.checkpoints()] == [name]
    assert len(store.load(name)) == 3
    write(store, CheckpointName(2, 5, 2))
    assert [checkpoint.name for checkpoint in store.checkpoints()] == [
        name,
        CheckpointName(2, 5, 2),
    ]
    store.commit(CheckpointName(2, 5, 2), 3)
    assert [checkpoint.name for checkpoint in store.checkpoints()] == [CheckpointName(2, 5, 2)]
    assert [path.name for path in (store.root / name.folder).iterdir()] == ["shard-1-of-3"]


def test_what_one_server_wrote_alone_is_found_by_two(tmp_path: Path) -> None:
    """Servers may be added: the only file is that of all."""
    name = CheckpointName(1, 10, 1)
    with closing(CheckpointStore(tmp_path, "digits", 0, 1)) as alone:
        shard = make_shard()
        about = {"job": "digits", "index": 0, **name._asdict()}
        alone.prepare(name, *shard_codec.snapshot(shard, about))
        alone.commit(name, 1)

    with closing(CheckpointStore(tmp_path, "digits", 1, 2)) as store:
        assert [checkpoint.name for checkpoint in store.checkpoints()] == [name]
        assert len(store.load(name)) == 1


def test_what_was_written_at_the_end_is_used_once(store: CheckpointStore) -> None:
    """And only where no newer generation was served since."""
    assert store.load_shutdown_checkpoint() is None
    write(store, CheckpointName(3, SHUTDOWN_VERSION, 2))
    last = store.load_shutdown_checkpoint()
    assert last is not None
    store.record_generation(4)
    assert store.load_shutdown_checkpoint() is None
    store.delete_shutdown_checkpoint()

    assert store.checkpoints() == []
    assert store.generation() == 4


def test_two_processes_cannot_serve_the_same(store: CheckpointStore, tmp_path: Path) -> None:
    """Of another server or job there may be as many as there are."""
    for index, job in ((1, "digits"), (0, "letters")):
        CheckpointStore(tmp_path, job, index, 2).close()
    with pytest.raises(ShardError, match="another parameter server 0 of 2 uses"):
        CheckpointStore(tmp_path, "digits", 0, 2)

    assert store.checkpoints() == []


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """One line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ShardError, match="cannot use"):
        CheckpointStore(tmp_path / "file", "digits", 0, 1)


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
            self._folders[path] = {
                checkpoint.name: checkpoint.stat().st_ino for checkpoint in path.iterdir()
            }
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
    fake_disk = Disk()
    monkeypatch.setattr(os, "fsync", fake_disk.sync)
    return fake_disk


def test_what_was_answered_survives_a_power_failure(disk: Disk, tmp_path: Path) -> None:
    """A part that was prepared, its commit, and the newest generation; in a folder that is new."""
    folder, name = tmp_path / "disk", CheckpointName(1, 10, 2)
    folder.mkdir()

    def after_power_failure(copy: str) -> CheckpointStore:
        disk.fail(folder, tmp_path / copy)
        return CheckpointStore(tmp_path / copy / "new", "digits", 0, 2)

    with closing(CheckpointStore(folder / "new", "digits", 0, 2)) as store:
        store.record_generation(1)
        with closing(after_power_failure("entered")) as again:
            assert again.generation() == 1
        write(store, name)
        with closing(after_power_failure("prepared")) as again:
            assert [checkpoint.name for checkpoint in again.checkpoints()] == [name]
            assert again.load(name)[0].arrays["dense"].tolist() == [-1.0] * 8
        store.commit(name, 3)
        with closing(after_power_failure("committed")) as again:
            assert [path.name for path in (again.root / name.folder).iterdir()] == ["shard-0-of-2"]
            assert [checkpoint.name for checkpoint in again.checkpoints()] == [name]


def test_what_was_written_at_the_end_does_not_come_back_after_a_power_failure(
    disk: Disk, tmp_path: Path
) -> None:
    """It was used: resuming from it again would lose pushes silently."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with closing(CheckpointStore(folder, "digits", 0, 2)) as store:
        write(store, CheckpointName(3, SHUTDOWN_VERSION, 2))
        store.delete_shutdown_checkpoint()
        disk.fail(folder, tmp_path / "left")
    with closing(CheckpointStore(tmp_path / "left", "digits", 0, 2)) as again:
        assert again.checkpoints() == []
        assert again.load_shutdown_checkpoint() is None


def test_a_full_disk_leaves_nothing_behind(store: CheckpointStore) -> None:
    """The folder is named; older checkpoints are whole."""
    shard = make_shard()
    ids = np.arange(1000)
    shard.push(push(1, sparse={"words": (ids, np.ones((1000, 2), np.float32))}))
    name = CheckpointName(1, 10, 2)
    with files_up_to(1024), pytest.raises(ShardError, match="cannot write"):
        store.prepare(
            name, *shard_codec.snapshot(shard, {"job": "digits", "index": 0, **name._asdict()})
        )

    assert store.checkpoints() == []
    assert not (store.root / name.folder).exists()


def test_a_generation_that_cannot_be_written_is_said(store: CheckpointStore) -> None:
    """The folder went away."""
    for path in store.root.iterdir():
        path.unlink()
    store.root.rmdir()
    with pytest.raises(ShardError, match="cannot write"):
        store.record_generation(2)
    store.root.mkdir()

    assert store.generation() == 0
