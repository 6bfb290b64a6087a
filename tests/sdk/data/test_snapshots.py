"""Snapshots of processes in memory that they share with their agent."""

import errno
import json
import os
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from edl import CheckpointError, SettingError, Snapshots
from edl.data.snapshot_parts import Slots, SnapshotPart, find_parts, reading
from edl.data.snapshots import RESTORE


def process(folder: Path, rank: int = 0, world_size: int = 1, **options: Any) -> Snapshots:
    """The snapshots of a process of an agent."""
    environ = {
        "EDL_SNAPSHOTS": str(folder),
        "EDL_SNAPSHOT_ROUND": "2",
        **options.pop("environ", {}),
    }
    places = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
    return Snapshots(environ={**environ, **places}, **options)


def restore(folder: Path, *parts: SnapshotPart) -> None:
    """Says which parts a round starts from, as the agent does."""
    text = json.dumps([asdict(part) for part in parts])
    (folder / RESTORE).write_text(text, encoding="utf-8")


def steps(folder: Path) -> list[int]:
    """Of all parts that are whole."""
    return sorted(part.step for part in find_parts(folder))


def test_the_newest_comes_back(tmp_path: Path) -> None:
    """What was saved last, unless its write was not complete; the one before stays until then."""
    snapshots = process(tmp_path)
    assert snapshots.newest() is None
    for step in (1, 2, 3):
        assert snapshots.save(step, {"w": np.full(5, step)})
    assert steps(tmp_path) == [2, 3]
    descriptor = Slots(tmp_path, "own-0").open(1_000)
    assert descriptor is not None
    os.close(descriptor)
    assert steps(tmp_path) == [3]
    (part,) = find_parts(tmp_path)
    assert (part.round, part.rank, part.count) == (2, 0, 1)
    restore(tmp_path, part)
    newest = process(tmp_path, 1, 2).newest()
    assert newest is not None
    assert (newest.step, newest.count) == (3, 1)
    assert newest.state()["w"].tolist() == [3] * 5


def test_others_than_rank_0_save_nothing(tmp_path: Path) -> None:
    """All have the same state."""
    assert not process(tmp_path, 1, 2).save(1, {})
    assert steps(tmp_path) == []


def test_each_process_may_have_a_state_of_its_own(tmp_path: Path) -> None:
    """One of each is a snapshot; another number of processes reads all parts."""
    for rank in range(2):
        assert process(tmp_path, rank, 2, sharded=True).save(7, [rank])
    parts = sorted(find_parts(tmp_path), key=lambda part: part.rank)
    assert [(part.rank, part.count) for part in parts] == [(0, 2), (1, 2)]
    restore(tmp_path, *parts)
    newest = process(tmp_path, 1, 2, sharded=True).newest()
    assert newest is not None
    assert newest.state() == [1]
    assert [newest.state(rank) for rank in range(newest.count)] == [[0], [1]]
    with pytest.raises(
        CheckpointError,
        match=r"2 parts, but none of rank 2: load the existing ones with state\(rank\)",
    ):
        newest.state(2)


def test_a_part_that_is_read_is_not_overwritten(tmp_path: Path) -> None:
    """The save is left out; a reader of a part that is being overwritten gets nothing."""
    snapshots = process(tmp_path)
    for step in (1, 2):
        snapshots.save(step, [step])
    first = min(find_parts(tmp_path), key=lambda part: part.step)
    with reading(tmp_path, first) as descriptor:
        assert descriptor is not None
        assert not snapshots.save(3, [3])
    assert snapshots.save(3, [3])
    with reading(tmp_path, first) as descriptor:
        assert descriptor is None


def test_memory_has_a_limit(tmp_path: Path) -> None:
    """That of the agent: named with the flag that sets it."""
    snapshots = process(tmp_path, environ={"EDL_SNAPSHOT_BYTES": "3000000"})
    state = {"w": np.zeros(1_400_000, np.uint8)}
    assert snapshots.save(1, state)
    assert snapshots.save(2, state)
    assert snapshots.save(3, state)
    with pytest.raises(CheckpointError, match=r"of 3\.0 MB \(--snapshot-memory\)"):
        snapshots.save(4, {"w": np.zeros(2_000_000, np.uint8)})


def test_shared_memory_that_is_too_small_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it has, what is needed, and how a pod gets it; also if others take it meanwhile."""
    text = r"has .*free, too little for a snapshot of .*: mount an emptyDir with medium Memory at"
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=16, f_frsize=4_096))
    with pytest.raises(CheckpointError, match=text):
        process(tmp_path).save(1, {"w": np.zeros(100_000)})
    monkeypatch.undo()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CheckpointError, match=text):
        process(tmp_path).save(1, {"w": np.zeros(100_000)})
    assert steps(tmp_path) == []


def test_a_slot_that_has_its_memory_asks_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system would look at each of its pages while training stands still; a larger state needs more."""
    snapshots, asked = process(tmp_path), []
    ask = os.posix_fallocate

    def noted(descriptor: int, offset: int, size: int) -> None:
        asked.append(size)
        ask(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", noted)
    for step in range(1, 6):
        assert snapshots.save(step, {"w": np.full(100_000, step)})
    assert len(asked) == 2, "once for each slot"
    assert snapshots.save(6, {"w": np.zeros(200_000)})
    assert len(asked) == 3


def test_without_agent_nothing_is_kept() -> None:
    """A script runs as it is under torchrun, too."""
    snapshots = Snapshots(environ={})
    assert not snapshots.save(1, {"w": 1})
    assert snapshots.newest() is None


def test_damage_is_named(tmp_path: Path) -> None:
    """Of the agent's file and variables; a record that is none does not count."""
    (tmp_path / RESTORE).write_text("[{}]")
    with pytest.raises(CheckpointError, match="restore is damaged"):
        process(tmp_path).newest()
    with pytest.raises(SettingError, match="EDL_SNAPSHOT_ROUND is 'x'"):
        process(tmp_path, environ={"EDL_SNAPSHOT_ROUND": "x"})
    (tmp_path / "own-0.0.json").write_text("[]")
    (tmp_path / "own-0.1.json").write_text('{"round": 1}')
    assert find_parts(tmp_path) == {}
