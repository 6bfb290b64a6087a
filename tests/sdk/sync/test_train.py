"""Synchronous training with a real master: members come, go and die."""

from typing import Any

import edl
import numpy as np
import pytest
from edl import Session, Settings
from edl.sync import engine

from tests.master.serving import TOKEN, Served
from tests.sdk.sync.crews import Crew
from tests.sdk.sync.replicas import Softmax, data


def test_one_trainer_trains_it_all(master: Served) -> None:
    """Two epochs of 512 records in steps of 32."""
    crew = Crew(master)
    one = crew.add()

    result = one.end()

    assert (result.steps, result.records, result.whole) == (32, 1024, True)
    assert result.metrics["accuracy"] > 0.9
    assert [step.epoch for step in one.steps] == [0] * 16 + [1] * 16
    progress = master.service.status()["datasets"]["points"]
    assert progress["done_records"] == 1024


@pytest.mark.parametrize("world", [2, 3])
def test_members_end_with_the_same_weights_as_one_alone(master: Served, world: int) -> None:
    """Whoever computes which part of a step: its sum is the same but for rounding."""
    crew = Crew(master)
    for _ in range(world):
        crew.add()

    results = [one.end() for one in crew.trainers]

    assert {result.records for result in results if result.whole} == {1024}
    weights = [one.replica.weights for one in crew.trainers if isinstance(one.replica, Softmax)]
    for each in weights[1:]:
        assert np.array_equal(each, weights[0])


def test_a_trainer_that_comes_late_has_nothing_to_do(master: Served) -> None:
    """The job is done: it ends at once, and nobody says that anything was lost."""
    crew = Crew(master)
    crew.add().end()

    late = crew.add().end()

    assert (late.whole, late.late, late.steps) == (True, True, 0)
    assert master.service.status()["setbacks"]["count"] == 0


def test_whoever_is_let_in_as_the_job_ends_has_nothing_to_do_either(
    master: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw the job working when it came, and leads a round of its own when all others are gone."""
    crew = Crew(master)
    crew.add().end()
    known, asked = engine.Engine.status, []

    def status(self: engine.Engine) -> Any:
        asked.append(self)
        return {} if len(asked) == 1 else known(self)

    monkeypatch.setattr(engine.Engine, "status", status)
    late = crew.add().end()

    assert (late.whole, late.late, late.steps) == (True, True, 0)
    assert len(asked) == 2
    assert master.service.status()["setbacks"]["count"] == 0


def test_a_trained_model_that_is_lost_fails_the_job(master: Served) -> None:
    """All data was trained, the export is still to be made, and nobody has the model any more."""
    crew = Crew(master)
    first = Session(Settings(f"http://127.0.0.1:{master.port}", TOKEN, "trainer-9"))
    edl.Export(member=first)
    crew.add().end()
    first.leave()

    with pytest.raises(edl.TrainingError, match="trained model was lost with all trainers"):
        crew.add().end()

    assert "there is no checkpoint" in master.service.status()["reason"]


def test_a_program_may_train_on_one_data_set_after_the_other(master: Served) -> None:
    """The same processes, in the same job: rounds begin anew with the second one."""
    crew = Crew(master, epochs=1, stays=True)
    first = [crew.add() for _ in range(2)]
    results = [one.end() for one in first]
    assert {one.records for one in results if one.rounds} == {512}

    second = [
        crew.add(dataset=data(256, "more"), member=one.member, replica=one.replica) for one in first
    ]

    assert {(one.end().whole, one.end().records) for one in second} == {(True, 256)}
    assert master.service.status()["state"] == "done"
    for one in first:
        one.member.leave()
