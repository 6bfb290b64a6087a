import hashlib
import json
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any

import edl
import numpy as np
import pytest
from edl import CheckpointError
from edl.data import checkpoints

from tests.sdk.conftest import Join
from tests.sdk.support.master_server import Server, before_away


def _save(home: Path, member: edl.Session, value: float = 1.0, **options: Any) -> edl.Checkpoint:
    checkpoint = edl.save_checkpoint(home, {"weights": np.full(3, value)}, member=member, **options)
    assert checkpoint is not None
    return checkpoint


def _rewrite(path: Path, **fields: Any) -> None:
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **fields}))


def _entry(name: str) -> dict[str, Any]:
    return {"name": name, "bytes": 0, "sha256": hashlib.sha256().hexdigest()}


def _link_to_a_device(path: Path) -> None:
    """Reading it would not end."""
    (path / "arrays.npz").unlink()
    (path / "arrays.npz").symlink_to("/dev/zero")
    _rewrite(path, files=[_entry("arrays.npz")])


def test_what_is_saved_is_found_again(server: Server, join: Join, tmp_path: Path) -> None:
    """Arrays, step, version and progress of the data; the master has the path."""
    member = join()
    for _ in edl.batches(edl.from_function("train", int, 8), 4, member=member):
        pass
    saved = _save(tmp_path / "models", member, 2.5, step=12)
    newest = edl.latest_checkpoint(tmp_path / "models")

    assert newest == saved
    assert newest.step == 12
    assert newest.progress["train"]["done_records"] == 8
    assert newest.arrays()["weights"].tolist() == [2.5] * 3
    assert server.master.state.checkpoint is not None
    assert server.master.state.checkpoint["path"] == str(saved.path)


def test_a_function_may_write_any_files(join: Join, tmp_path: Path) -> None:
    """In folders too; they are checked like all others."""

    def write(folder: Path) -> None:
        (folder / "layers").mkdir()
        (folder / "layers" / "one.txt").write_text("weights")

    checkpoint = edl.save_checkpoint(tmp_path, write, member=join())

    assert checkpoint is not None
    assert (checkpoint.path / "layers" / "one.txt").read_text() == "weights"
    with pytest.raises(CheckpointError, match="holds no arrays"):
        checkpoint.arrays()


def test_only_one_trainer_saves_at_a_time(join: Join, tmp_path: Path) -> None:
    """The others go on training at once."""
    other, results = join("trainer-1"), []

    def write(folder: Path) -> None:
        results.append(edl.save_checkpoint(tmp_path, {"w": np.zeros(1)}, member=other))
        (folder / "w").write_text("w")

    assert edl.save_checkpoint(tmp_path, write, member=join()) is not None
    assert results == [None]
    assert _save(tmp_path, other).version == 2


def test_old_ones_are_deleted(join: Join, tmp_path: Path) -> None:
    """And so are the remains of savers that died long ago; fresh remains are not."""
    member = join()
    for age_s in (0, 3600):
        (tmp_path / f".checkpoint-1.{age_s}").mkdir()
    os.utime(tmp_path / ".checkpoint-1.3600", (1, 1))
    for _ in range(4):
        _save(tmp_path, member, keep=2)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".checkpoint-1.0",
        "checkpoint-00000003",
        "checkpoint-00000004",
    ]


def test_versions_only_grow(server: Server, join: Join, tmp_path: Path) -> None:
    """Even when the master has lost its books and counts from 1 again."""
    member = join()
    assert [_save(tmp_path, member).version for _ in range(2)] == [1, 2]
    server.master.take_over()

    assert _save(tmp_path, member).version == 3


def _cut(path: Path) -> None:
    file = path / "arrays.npz"
    file.write_bytes(file.read_bytes()[:-7])


def _flip(path: Path) -> None:
    file = path / "arrays.npz"
    raw = bytearray(file.read_bytes())
    raw[50] ^= 1
    file.write_bytes(raw)


def _change(path: Path) -> None:
    about = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**about, "format": 9}))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_cut, r"arrays.npz has \d+ bytes instead of \d+"),
        (_flip, "its checksum does not match"),
        (_change, "has format 9"),
        (lambda path: (path / "arrays.npz").unlink(), "is incomplete: .*arrays.npz"),
        (lambda path: (path / "manifest.json").unlink(), "is incomplete: .*manifest.json"),
        (lambda path: (path / "manifest.json").write_text('{"form'), "manifest.json is damaged"),
        (lambda path: _rewrite(path, version=1e999), "Infinity is not JSON"),
        (
            lambda path: (path / "manifest.json").write_text("[" * 100_000),
            "nested too deeply",
        ),
        (
            lambda path: _rewrite(path, files=[_entry("../../etc/passwd")]),
            "passwd', which is outside the folder",
        ),
        (
            lambda path: _rewrite(path, files=[_entry("/dev/zero")]),
            "zero', which is outside the folder",
        ),
        (_link_to_a_device, "arrays.npz is not a regular file"),
        (
            lambda path: (path / "manifest.json").write_text("{}"),
            "manifest.json is damaged: KeyError",
        ),
    ],
)
def test_a_damaged_one_is_skipped(
    join: Join, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any, text: str
) -> None:
    """The log names it and why; the one before is used."""
    member = join()
    first, second = (_save(tmp_path, member, step=step) for step in (1, 2))
    damage(second.path)

    assert edl.latest_checkpoint(tmp_path) == first
    with pytest.raises(CheckpointError, match=text):
        edl.read_checkpoint(second.path)
    assert "checkpoint skipped: " in caplog.text


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    """Neither an empty directory nor a missing one is an error."""
    assert edl.latest_checkpoint(tmp_path) is None
    assert edl.latest_checkpoint(tmp_path / "none") is None


def test_a_save_that_fails_leaves_nothing_and_frees_the_ticket(join: Join, tmp_path: Path) -> None:
    """The error names the place and the cause; the next one may try."""
    member = join()

    def write(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="No space left on device"):
        edl.save_checkpoint(tmp_path, write, member=member)
    with pytest.raises(CheckpointError, match="the program wrote no files"):
        edl.save_checkpoint(tmp_path, lambda _: None, member=member)
    with pytest.raises(CheckpointError, match="keep is 0"):
        edl.save_checkpoint(tmp_path, lambda _: None, keep=0, member=member)

    assert list(tmp_path.iterdir()) == []
    assert _save(tmp_path, join("trainer-1")).version == 3  # each ticket has its own


def test_a_master_that_is_away_ends_no_training(
    server: Server, join: Join, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No checkpoint now; a complete one stays, though it cannot be reported to the master."""
    member = join()
    member.join()
    server.faults["/v1/checkpoints"] = deque([before_away])

    assert edl.save_checkpoint(tmp_path, {"w": np.zeros(1)}, member=member) is None
    assert "no checkpoint saved" in caplog.text

    server.faults["/v1/checkpoints/save-1"] = deque([before_away])
    checkpoint = _save(tmp_path, member)

    assert edl.latest_checkpoint(tmp_path) == checkpoint
    assert "could not report the checkpoint" in caplog.text


def test_a_slow_reader_finds_what_was_saved_meanwhile(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it had listed are deleted before it reads the first of them."""
    member = join()
    _save(tmp_path, member)
    read, steps = checkpoints.read_checkpoint, iter((7, 8))

    def read_late(path: Path) -> edl.Checkpoint:
        for step in steps:
            _save(tmp_path, member, step=step, keep=1)
        return read(path)

    monkeypatch.setattr(checkpoints, "read_checkpoint", read_late)
    newest = edl.latest_checkpoint(tmp_path)

    assert newest is not None
    assert newest.step == 8


def test_a_reader_never_sees_half_a_checkpoint(join: Join, tmp_path: Path) -> None:
    """While one is written again and again, each look finds a whole one."""
    member = join()
    _save(tmp_path, member)
    over = threading.Event()
    newest_ones: list[edl.Checkpoint | None] = []

    def look() -> None:
        while not over.is_set():
            newest_ones.append(edl.latest_checkpoint(tmp_path))

    thread = threading.Thread(target=look)
    thread.start()
    for step in range(10):
        _save(tmp_path, member, step=step, keep=3)
    over.set()
    thread.join()

    assert None not in newest_ones
