"""Members that write one checkpoint together, over keys of their round."""

import base64
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from edl import Checkpoint, CheckpointError, Refused, RoundOver, latest_checkpoint
from edl.master.protocol import Json, Ticket
from edl.sync.replica import State
from edl.sync.saving import CheckpointWriter
from edl.sync.shared_write import SharedWrite

LIMIT_S = 60.0


class Keys:
    """The master's keys of a round, as a client calls them."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.most = 0
        """Characters of the longest value that was set."""
        self._changed = threading.Condition()
        self._is_over = False
        self.deletes = True
        """Whether it has the call that deletes keys."""
        self.closed = 0

    def set_key(self, _number: int, key: str, value: str) -> None:
        """Sets a key."""
        with self._changed:
            self._check()
            self.most = max(self.most, len(value))
            self.values[key] = value
            self._changed.notify_all()

    def delete_keys(self, _number: int, keys: Sequence[str]) -> None:
        """Deletes keys."""
        with self._changed:
            self._check()
            if not self.deletes:
                raise Refused(404, "there is no such call")
            for key in keys:
                self.values.pop(key, None)

    def keys(self, _number: int, keys: Sequence[str], _wait_s: float) -> Json:
        """Waits for keys."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or all(key in self.values for key in keys), LIMIT_S
            )
            self._check()
            return {key: self.values[key] for key in keys if key in self.values}

    def _check(self) -> None:
        if self._is_over:
            raise Refused(409, "the round is over", "round")

    def end(self) -> None:
        """Ends the round."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def close(self) -> None:
        """Closes a connection."""
        self.closed += 1


class Permit:
    """The leader's right to write, which may be refused."""

    job = "digits"

    def __init__(self, *, granted: bool = True) -> None:
        self._granted = granted

    def request_save(self, newest: int = 0) -> Ticket:
        """As in `CheckpointPermit`."""
        return Ticket(self._granted, "ticket", newest + 1, None)

    def report_saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """As in `CheckpointPermit`."""

    def progress(self) -> Json:
        """As in `CheckpointPermit`."""
        return {}

    def close(self) -> None:
        """As in `CheckpointPermit`."""


class Share:
    """One member's part: a file with its rank."""

    def __init__(self, rank: int, may_write: threading.Event, error: str, tensors: int) -> None:
        self.extra: dict[str, Any] = {"all": 1}
        self.tensors = tensors
        self._rank, self._may_write, self._error = rank, may_write, error

    def write(self, folder: Path) -> Json:
        """As in `edl.sync.saving.Share`."""
        assert self._may_write.wait(LIMIT_S)
        if self._error:
            raise OSError(self._error)
        (folder / f"part-{self._rank}").write_text("x", encoding="utf-8")
        return {"rank": self._rank, "tensors": [f"layer.{n}.weight" for n in range(self.tensors)]}

    def finish(self, folder: Path, results: Sequence[Json]) -> None:
        """As in `edl.sync.saving.Share`."""
        (folder / "index").write_text(str([result["rank"] for result in results]), encoding="utf-8")


class Member:
    """A member that writes; its files, too."""

    is_sharded = True

    def __init__(self, folder: Path, keys: Keys, rank: int, count: int, error: str = "") -> None:
        self._keys, self._rank, self._count, self._error = keys, rank, count, error
        self.tensors = 1
        self.may_write = threading.Event()
        self.may_write.set()
        self.writer = CheckpointWriter(folder, self)

    def stage(self, replica: Any, rank: int, count: int) -> Share:
        """As in `StateFiles`."""
        assert (replica, count) == (None, self._count)
        return Share(rank, self.may_write, self._error, self.tensors)

    def read(self, checkpoint: Checkpoint, extra: dict[str, Any]) -> State:
        """As in `StateFiles`."""
        raise NotImplementedError

    def shared(self, step: int, *, is_last: bool = False) -> SharedWrite:
        """Its part in a write."""
        client: Any = self._keys
        about: Any = {"step": step, "client": client, "round_number": 1, "is_last": is_last}
        return SharedWrite(f"trainer-{self._rank}", self._rank, self._count, **about)

    def save(self, step: int, *, granted: bool = True, wait: bool = False) -> None:
        """Begins to write."""
        replica: Any = None
        permit: Any = Permit(granted=granted) if self._rank == 0 else None
        shared = self.shared(step, is_last=wait)
        self.writer.save(replica, {"step": step}, shared, permit, wait=wait)


def members(folder: Path, keys: Keys, *errors: str) -> list[Member]:
    """Members of a round, with what goes wrong with each."""
    return [Member(folder, keys, rank, len(errors), error) for rank, error in enumerate(errors)]


def close(crew: Sequence[Member]) -> None:
    """Waits for all."""
    for member in crew:
        member.writer.close()


def test_each_writes_its_part(tmp_path: Path) -> None:
    """The leader completes the checkpoint when it has the results of all, in order."""
    keys = Keys()
    crew = members(tmp_path, keys, "", "", "")
    for member in crew:
        member.save(7)
    close(crew)
    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 7
    assert (checkpoint.path / "index").read_text("utf-8") == "[0, 1, 2]"
    assert len(list(checkpoint.path.glob("part-*"))) == 3
    assert keys.closed == 3


def test_a_model_may_have_many_tensors(tmp_path: Path) -> None:
    """What is reported of them fits into a key, and is gone from the keys when it has been read."""
    keys = Keys()
    crew = members(tmp_path, keys, "", "", "")
    for member in crew:
        member.tensors = 100_000
        member.save(7)
    close(crew)
    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.path / "index").read_text("utf-8") == "[0, 1, 2]"
    assert keys.most < 1 << 20
    assert sum(len(value) for value in keys.values.values()) < 100


@pytest.mark.parametrize("deletes", [True, False])
def test_a_round_has_room_for_any_number_of_checkpoints(tmp_path: Path, *, deletes: bool) -> None:
    """Those that were left out, too. An older master keeps the keys, with no values."""
    keys = Keys()
    keys.deletes = deletes
    crew = members(tmp_path, keys, "", "", "")
    for step in range(0, 40, 2):
        for member in crew:
            member.may_write.clear()
            member.save(step)
            member.save(step + 1)
        for member in crew:
            member.may_write.set()
        close(crew)
    left = {key.split("/")[1] for key in keys.values}
    assert left == {"39"} if deletes else len(left) == 40
    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 38


def test_a_part_that_fails_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the leader with the member's name; nothing is left in the folder, and the next may work."""
    keys = Keys()
    crew = members(tmp_path, keys, "", "No space left on device")
    for member in crew:
        member.save(7)
    close(crew)
    assert list(tmp_path.iterdir()) == []
    assert "trainer-1 could not write its part: OSError: No space left on device" in caplog.text
    crew[1]._error = ""  # noqa: SLF001 - the disk has room again
    for member in crew:
        member.save(8)
    close(crew)
    assert latest_checkpoint(tmp_path) is not None


def test_one_that_still_writes_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others wait for nothing, whoever it is that has left a checkpoint out."""
    caplog.set_level(logging.INFO, "edl")
    keys = Keys()
    crew = members(tmp_path, keys, "", "")
    crew[1].may_write.clear()
    for step in (7, 8):
        for member in crew:
            member.save(step)
    crew[1].may_write.set()
    close(crew)
    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 7
    assert base64.b64decode(keys.values["checkpoint/8"]) == b""
    assert b"trainer-1 was still writing" in base64.b64decode(keys.values["checkpoint/8/1"])
    assert (
        caplog.text.count("step 8: checkpoint skipped, the previous one is still being written")
        == 2
    )


def test_nothing_is_written_without_a_ticket(tmp_path: Path) -> None:
    """The master has refused the leader: the others do not wait for a folder."""
    crew = members(tmp_path, Keys(), "", "")
    for member in crew:
        member.save(7, granted=False)
    close(crew)
    assert list(tmp_path.iterdir()) == []


def test_the_last_one_is_waited_for(tmp_path: Path) -> None:
    """A member that waits returns after the checkpoint is complete."""
    crew = members(tmp_path, Keys(), "", "")
    found: list[Checkpoint | None] = []

    def save() -> None:
        crew[1].save(7, wait=True)
        found.append(latest_checkpoint(tmp_path))

    thread = threading.Thread(target=save)
    thread.start()
    crew[0].save(7, wait=True)
    thread.join(LIMIT_S)
    assert found == [latest_checkpoint(tmp_path)] != [None]


def test_the_last_one_may_be_of_a_step_that_was_saved(tmp_path: Path) -> None:
    """Each part is written again, into the new folder and not into that of before."""
    crew = members(tmp_path, Keys(), "", "")
    for member in crew:
        member.save(7)
    close(crew)
    other = threading.Thread(target=lambda: crew[1].save(7, wait=True))
    other.start()  # before the leader has a folder
    other.join(0.2)
    crew[0].save(7, wait=True)
    other.join(LIMIT_S)
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders == ["checkpoint-00000001", "checkpoint-00000002"]
    for name in folders:
        assert len(list((tmp_path / name).glob("part-*"))) == 2


def test_all_waits_end_with_the_round(tmp_path: Path) -> None:
    """Of the leader for a part, and of a member for the folder or the end: nothing is completed."""
    for rank in (0, 1):
        keys = Keys()
        crew = members(tmp_path, keys, "", "")
        crew[rank].save(7)
        keys.end()
        close(crew)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(RoundOver):
            crew[rank].shared(9).wait_for_end()


def test_a_leader_cannot_name_other_folders(tmp_path: Path) -> None:
    """A part is written beside the checkpoints and nowhere else."""
    keys = Keys()
    leader, member = members(tmp_path, keys, "", "")
    leader.shared(7).announce("../elsewhere")
    with pytest.raises(CheckpointError, match="which is not a folder of checkpoints"):
        member.shared(7).announced()
