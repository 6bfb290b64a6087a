"""How training continues after all members were lost, or have left."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import edl
import pytest
from edl import clock
from edl.master import protocol
from edl.sync import SyncStep
from edl.sync.group_session import GROUP

from tests.master.serving import TOKEN, Served
from tests.sdk.support.loops import until
from tests.sdk.sync.crews import Crew, Gate, Trainer, Watched, done_records, kept_steps
from tests.sdk.sync.fleets import Fleet
from tests.sdk.sync.lines import Line
from tests.sdk.sync.replicas import Softmax, data

Json = dict[str, Any]
OPTIONS: Json = {
    "batch_size": 64,
    "micro_batches": 8,
    "shuffle_seed": 1,
    "records": 1024,
    "rate": 0.001,
    "pause_s": 0.05,
    "epochs": 4,
}
RECORDS = 4 * 1024
STEPS = RECORDS // 64
_WAIT_S = 60.0


def _stop_all(members: list[Trainer], gate: Gate) -> None:
    """All leave, after the same step."""
    assert gate.reached.wait(60)
    for trainer in members:
        trainer.member.stop()
    gate.open.set()
    assert [trainer.end().whole for trainer in members] == [False] * len(members)


@pytest.mark.parametrize("count", [1, 2])
def test_the_last_to_leave_write_what_they_have(master: Served, tmp_path: Path, count: int) -> None:
    """Nothing is lost with them, however few steps lie between checkpoints."""
    crew, gate = Crew(master, checkpoints=tmp_path / "kept"), Gate(count, at=6)
    members = crew.pair(gate)[:] if count > 1 else [crew.add(gate)]
    _stop_all(members, gate)
    last_step = members[0].steps[-1].step

    again = crew.add(replica=Softmax(9))

    assert again.end().whole
    assert again.steps[0].step == last_step + 1
    status = master.service.status()
    assert status["setbacks"]["count"] == 0
    assert status["datasets"]["points"]["done_records"] == 1024


def test_one_who_leaves_while_it_waits_for_records_writes_too(
    master: Served, tmp_path: Path
) -> None:
    """It has no current step to wait for: others have all remaining records."""
    crew = Crew(master, checkpoints=tmp_path / "kept", epochs=1, dataset=data(4096))
    gate = Gate(1, at=2)
    trainer = crew.add(gate)
    assert gate.reached.wait(60)
    other = edl.Session(replace(trainer.member.settings, trainer="another"))
    other.join()
    client = other.client()
    scope: Json = {"datasets": ["points"], "kinds": ["training"]}
    other.work_calls.send(client, other.work_calls.new_request(protocol.Report(), scope, 1000))
    client.close()
    gate.open.set()
    until_s = clock.monotonic_s() + _WAIT_S
    while master.service.status()["trainers"][GROUP]["held"]:
        assert clock.monotonic_s() < until_s
        threading.Event().wait(0.02)
    waits = len(trainer.steps)
    trainer.member.stop()

    assert not trainer.end().whole
    other.leave()
    again = crew.add(replica=Softmax(9))
    assert again.end().whole
    assert again.steps[0].step == waits + 1


def test_a_loss_is_told_once_however_often_training_goes_on(master: Served, tmp_path: Path) -> None:
    """The records of one kill are trained again; regular ends and restarts lose nothing more."""
    folder = tmp_path / "kept"
    crew = Crew(master, checkpoints=folder, checkpoint_steps=8, epochs=4)
    _train_then_die(crew, folder, saved=8, done=12)
    lost = []
    for last in (16, 24, 32):
        trainer = crew.add(_stopping(last), name="trainer-0")
        assert not trainer.end().whole
        lost.append(master.service.status()["setbacks"]["records"])
    ended = crew.add(name="trainer-0").end()

    assert ended.whole
    done = master.service.status()["datasets"]["points"]["done_records"]
    assert ended.records == done
    assert lost[0] >= 4 * 32
    assert lost == [lost[0]] * 3
    assert master.service.status()["setbacks"]["count"] == 1


def _train_then_die(crew: Crew, folder: Path, *, saved: int, done: int) -> None:
    """One trainer, killed when `done` steps are acknowledged and `saved` are in a checkpoint."""
    line = Line(crew.master.port)

    def act(_: Trainer, step: SyncStep) -> None:
        if step.step == saved + 1:
            until(lambda: bool(folder.is_dir() and kept_steps(folder)))
        if step.step == done + 2:
            until(lambda: done_records(crew.master) >= done * 32)
            line.cut()
            raise RuntimeError("killed")

    settings = edl.Settings(line.url, TOKEN, "trainer-0", grace_s=5.0, patience_s=20.0)
    assert "killed" in crew.add(act, name="trainer-0", member=Watched(settings)).error_of()
    line.close()


def _stopping(last: int) -> Callable[[Trainer, SyncStep], None]:
    def act(trainer: Trainer, step: SyncStep) -> None:
        if step.step == last:
            trainer.member.stop()

    return act


def test_whoever_comes_while_others_export_does_not_begin_anew(master: Served) -> None:
    """All data is trained, by trainers who have left the rendezvous but not the job."""
    crew = Crew(master)
    first = crew.add(stays=True)
    edl.Export(member=first.member)
    assert not first.end().late

    late = crew.add().end()

    assert (late.whole, late.late) == (True, True)
    assert master.service.status()["state"] == "working"
    assert master.service.status()["setbacks"]["count"] == 0
    first.member.leave()


def _killed(folder: Path, **changes: Any) -> tuple[Json, int, Json]:
    """Two trainers are killed at once, and two others end the job.

    Returns:
        The status in between, the first step that was made after it, and the status at the end.
    """
    hurry = folder / "hurry"
    with Fleet(folder, {**OPTIONS, "hurry": str(hurry), **changes}) as fleet:
        for _ in range(2):
            fleet.add()
        assert fleet.until(lambda: fleet.newest_step() >= STEPS // 3, _WAIT_S)
        fleet.kill_trainers()
        before = fleet.status()
        hurry.touch()
        others = [fleet.add() for _ in range(2)]
        assert fleet.ended(others, _WAIT_S)
        assert [member.end is not None and member.end["end"] for member in others] == [True, True]
        return (
            before,
            min(member.steps[0]["step"] for member in others if member.steps),
            fleet.status(),
        )


@pytest.mark.soak  # `make test` has commands/test_train, and the next ones
@pytest.mark.timeout(180)
def test_all_killed_at_once_go_on_from_the_newest_checkpoint(tmp_path: Path) -> None:
    """The records trained since are trained again: the status has their number."""
    folder = str(tmp_path / "kept")
    before, first, after = _killed(tmp_path, checkpoints=folder, checkpoint_steps=10)

    saved_step = first - 1
    lost = before["datasets"]["points"]["done_records"] - saved_step * 64
    assert saved_step % 10 == 0
    assert saved_step >= STEPS // 3 - 20
    assert after["state"] == "done"
    assert after["datasets"]["points"]["done_records"] == RECORDS
    setbacks = after["setbacks"]
    assert setbacks["records"] == max(0, lost)
    if lost > 0:
        assert setbacks["newest"][0]["reason"] == (
            f"all trainers were lost: continuing from step {saved_step}"
        )


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_all_killed_without_checkpoints_begin_anew_and_say_so(tmp_path: Path) -> None:
    """Everything that was acknowledged is the loss."""
    before, first, after = _killed(tmp_path)

    assert first == 1
    setbacks = after["setbacks"]
    assert setbacks["count"] == 1
    assert setbacks["records"] == before["datasets"]["points"]["done_records"] > 0
    assert setbacks["newest"][0]["reason"] == "all trainers were lost: continuing from step 0"
