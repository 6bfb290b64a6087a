"""A model that counts its records equals the books, whoever is lost and whatever is restored."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.master.serving import Served
from tests.sdk.sync.crews import Crew, Trainer, Watched
from tests.sdk.sync.fleets import Fleet, Member
from tests.sdk.sync.replicas import Counting, numbers
from tests.sdk.sync.storms import Storm
from tests.support.storm_size import part_of

Json = dict[str, Any]
_WAIT_S = 60.0
RECORDS, EPOCHS = 256, 3
OPTIONS: Json = {
    "counts": True,
    "records": RECORDS,
    "batch_size": 8,
    "micro_batches": 4,
    "task_records": 40,
    "shuffle_seed": 1,
    "epochs": EPOCHS,
    "pause_s": 0.02,
}


def _lose_all(fleet: Fleet, *, master: bool) -> None:
    """Kills all trainers at once, and perhaps the master; starts it again."""
    fleet.kill_trainers()
    if master:
        fleet.kill_master()
        fleet.start_master()


def _reached(fleet: Fleet, step: int) -> bool:
    """Waits for a step; whether it was made in time."""
    return fleet.until(lambda: fleet.newest_step() >= step, _WAIT_S)


def _check(fleet: Fleet, members: list[Member], options: Json) -> Json:
    """Each record was trained once in each epoch, by the model and by the books; the status."""
    status = fleet.status()
    progress: Json = status["datasets"]["points"]
    records, epochs = options["records"], options["epochs"]
    ends = [member.end for member in members if member.end is not None and not member.end["late"]]
    assert ends
    assert [end["counts"] for end in ends] == [{str(epochs): records}] * len(ends)
    assert progress["done_records"] == records * epochs
    assert progress["dropped_records"] == 0
    assert (status["state"], status["setbacks"]["records"]) == ("done", progress["redone_records"])
    return status


@pytest.mark.timeout(180)
@pytest.mark.parametrize("checkpoint_steps", [7, pytest.param(0, marks=pytest.mark.soak)])
def test_after_the_loss_of_all_the_model_is_that_of_the_books(
    tmp_path: Path, checkpoint_steps: int
) -> None:
    """All trainers die, then all and the master; tasks are cut anywhere, and nothing is lost.

    Without checkpoints training begins anew, and so do the books.
    """
    hurry, folder = tmp_path / "hurry", str(tmp_path / "kept")
    saving = {"checkpoints": folder, "checkpoint_steps": checkpoint_steps}
    options = {**OPTIONS, "hurry": str(hurry), **(saving if checkpoint_steps else {})}
    with Fleet(tmp_path, options) as fleet:
        for master, steps in ((False, 20), (True, 45)):
            for _ in range(2):
                fleet.add()
            assert _reached(fleet, steps)
            _lose_all(fleet, master=master)
            for member in fleet.members:
                member.steps.clear()
        hurry.touch()
        last = [fleet.add() for _ in range(2)]
        assert fleet.ended(last, _WAIT_S)
        status = _check(fleet, last, options)

    assert checkpoint_steps or status["setbacks"]["count"] == 2
    assert all(event["redone"] == event["records"] for event in status["setbacks"]["newest"])


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_after_a_storm_of_changes_the_model_is_that_of_the_books(
    tmp_path: Path, *, thorough: bool
) -> None:
    """Trainers come, leave, die and freeze, the master dies, and three times all die at once.

    A hundred changes, two hundred in `make properties`.
    """
    hurry, size = tmp_path / "hurry", 4
    options = {
        **OPTIONS,
        "records": 4096,
        "epochs": 200,
        "pause_s": 0.05,
        "batch_size": 32,
        "task_records": 200,
        "checkpoints": str(tmp_path / "kept"),
        "checkpoint_steps": 20,
        "hurry": str(hurry),
    }
    with Fleet(tmp_path, options) as fleet:
        storm = Storm(fleet, size, Random(7))  # noqa: S311 - a seed
        storm.begin()
        for number in range(4):
            storm.blow(49 if thorough else part_of(24))
            if number < 3:
                _lose_all(fleet, master=True)
                storm.begin()
        members = storm.finish(hurry)
        _check(fleet, members, options)


# -- in one process ------------------------------------------------------------------------------


def _counted(master: Served, **options: Any) -> Crew:
    plan = {"dataset": numbers(RECORDS), "batch_size": 8, "task_records": 40, "epochs": 2}
    return Crew(master, **{**plan, **options})


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_the_last_that_leaves_in_the_midst_of_a_task_gives_back_the_remainder(
    master: Served, tmp_path: Path, *, is_interrupted: bool
) -> None:
    """What comes next goes on with the next record, and trains nothing again.

    But where the round ends as well, its newest step: that is set back, and counted.
    """
    crew = _counted(master, checkpoints=tmp_path / "kept", checkpoint_steps=50)
    set_back: list[int] = []
    for last in (3, 7, 13):

        def act(trainer: Trainer, step: Any, last: int = last) -> None:
            if step.step == last:
                trainer.member.stop()
                if is_interrupted:
                    assert isinstance(trainer.member, Watched)
                    trainer.member.loop.interrupt.set()

        crew.add(act, Counting(RECORDS), name="trainer-0").end()
        made = crew.trainers[-1].steps[-1].step
        assert made - last in (0, 1)
        done_records = master.service.status()["datasets"]["points"]["done_records"]
        set_back.append(made - done_records // 8)
        # a machine that stalls for long ends a round, too
        assert set_back[-1] == 1 or (set_back[-1] == 0 and not is_interrupted)
    replica = Counting(RECORDS)
    assert crew.add(replica=replica, name="trainer-0").end().whole

    assert replica.counts.tolist() == [2.0] * RECORDS
    status = master.service.status()
    assert (status["lost_records"], status["setbacks"]["count"]) == (0, sum(set_back))


def test_a_position_is_renewed_while_a_round_lasts(
    master: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not grow with the tasks that are trained, and all members have the same."""
    monkeypatch.setattr("edl.sync.group_round.RENEWED_AT", 4)
    crew = _counted(master, checkpoints=tmp_path / "kept", checkpoint_steps=1, task_records=8)
    first = crew.add(replica=Counting(RECORDS))
    assert first.began.wait(_WAIT_S)
    sizes: list[int] = []
    counts: list[int] = []

    def act(trainer: Trainer, _: Any) -> None:
        assert isinstance(trainer.member, Watched)
        data = trainer.member.loop.member.progress.data
        sizes.append(len(data.tasks))
        counts.append((data.dump() or {})["ledger"]["totals"][1])

    crew.add(act, Counting(RECORDS)).end()
    first.end()

    assert max(sizes, default=0) <= 16
    assert counts == sorted(counts)
    assert not counts or counts[-1] > counts[0]
