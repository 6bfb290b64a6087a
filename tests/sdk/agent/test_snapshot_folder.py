"""The folder of an agent in shared memory."""

import os
from pathlib import Path

import pytest
from edl import SettingError, Settings
from edl.agent.snapshot_folder import open_folder


def settings(trainer: str = "trainer-0") -> Settings:
    """Of an agent."""
    return Settings("http://127.0.0.1:1", "token", trainer)


def leave(memory: Path, trainer: str) -> Path:
    """Returns the folder of an agent that was killed."""
    folder = open_folder(settings(trainer), memory)
    assert folder is not None
    (folder.path / "own-0.0").touch()
    os.close(folder._lock)  # noqa: SLF001 - as the end of its process does
    return folder.path


def test_what_a_killed_agent_has_left_is_found_again(tmp_path: Path) -> None:
    """By one of the same name for the same master; it goes when that one ends."""
    path = leave(tmp_path, "trainer-0")
    folder = open_folder(settings(), tmp_path)
    assert folder is not None
    assert folder.path == path
    assert (path / "own-0.0").exists()
    assert path.stat().st_mode & 0o777 == 0o700
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_one_name_is_for_one_agent(tmp_path: Path) -> None:
    """The second is refused with the variable to set; another name is none of its business."""
    folder, other = open_folder(settings(), tmp_path), open_folder(settings("trainer-1"), tmp_path)
    assert folder is not None
    assert other is not None
    with pytest.raises(
        SettingError, match="another agent named trainer-0 is running here: set EDL_TRAINER"
    ):
        open_folder(settings(), tmp_path)
    other.close()
    assert folder.path.exists()
    folder.close()


def test_folders_of_agents_that_do_not_come_back_go(tmp_path: Path) -> None:
    """Old ones that nobody has locked; not those of agents that run."""
    gone, young = leave(tmp_path, "trainer-5"), leave(tmp_path, "trainer-6")
    running = open_folder(settings("trainer-7"), tmp_path)
    assert running is not None
    for path in (gone, running.path):
        os.utime(path, (0, 0))
    folder = open_folder(settings(), tmp_path)
    assert folder is not None
    assert set(tmp_path.iterdir()) == {young, running.path, folder.path}
    for each in (running, folder):
        each.close()


def test_without_memory_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder, or none that can be written; one that is not ours is refused."""
    assert open_folder(settings(), tmp_path / "none") is None
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(SettingError, match="belongs to another user: remove it"):
        open_folder(settings(), tmp_path)
