"""Synchronous training with a real master: members come, go and die."""

import threading
from pathlib import Path

import edl
import numpy as np
import pytest
from edl import Session, Settings
from edl.session import Loop

from tests.master.serving import TOKEN, Served
from tests.sdk.sync.crews import Crew, Gate, Trainer, together
from tests.sdk.sync.replicas import Floats, Softmax, data


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
def test_members_end_with_the_same_weights_as_one_alone(
    master: Served, tmp_path: Path, world: int
) -> None:
    """Whoever computes which part of a step: its sum is the same but for rounding."""
    other = Served(tmp_path / "other")
    alone = Crew(other).add(replica=Softmax(0))
    assert alone.end().whole
    other.stop()
    crew = Crew(master)
    for seed in range(world):
        crew.add(lambda one, step: together(one, step, world), Softmax(seed))
        assert crew.trainers[0].began.wait(60)  # its weights are those that all begin with

    results = [one.end() for one in crew.trainers]

    assert [(one.whole, one.late, one.records) for one in results] == [(True, False, 1024)] * world
    assert sum(step.world == world for step in crew.trainers[0].steps) >= 24
    first, *others = [_weights(one) for one in crew.trainers]
    assert all(np.array_equal(first, each) for each in others)
    assert np.allclose(first, _weights(alone), rtol=1e-3, atol=1e-4)
    assert not np.allclose(first, Softmax(0).weights, rtol=1e-1, atol=1e-1)


def _weights(trainer: Trainer) -> Floats:
    assert isinstance(trainer.replica, Softmax)
    return trainer.replica.weights


def test_a_trainer_that_comes_late_has_nothing_to_do(master: Served) -> None:
    """The job is done: it ends at once, and nobody says that anything was lost."""
    crew = Crew(master)
    crew.add().end()

    late = crew.add().end()

    assert (late.whole, late.late, late.steps) == (True, True, 0)
    assert master.service.status()["setbacks"]["count"] == 0


class Slow(Session):
    """Of a trainer that hears how the job is, and is let in only later."""

    def __init__(self, found: Settings) -> None:
        super().__init__(found)
        self.asked, self.let_in = threading.Event(), threading.Event()

    def register(self, loop: Loop) -> None:
        """As in `Session`."""
        self.asked.set()
        assert self.let_in.wait(60)
        super().register(loop)


def test_whoever_is_let_in_as_the_job_ends_has_nothing_to_do_either(master: Served) -> None:
    """It saw the job working when it came, and leads a round of its own when all others are gone."""
    crew, gate = Crew(master), Gate(1, at=6)
    first = crew.add(gate)
    assert gate.reached.wait(60)
    slow = Slow(Settings(f"http://127.0.0.1:{master.port}", TOKEN, "slow"))
    late = crew.add(member=slow)
    assert slow.asked.wait(60)
    gate.open.set()
    assert not first.end().late
    slow.let_in.set()

    result = late.end()

    assert (result.whole, result.late, result.steps) == (True, True, 0)
    assert master.service.status()["setbacks"]["count"] == 0


def test_a_trained_model_that_is_lost_fails_the_job(master: Served) -> None:
    """All data was trained, the export is still to be made, and nobody has the model any more."""
    crew = Crew(master)
    first = Session(Settings(f"http://127.0.0.1:{master.port}", TOKEN, "trainer-9"))
    edl.Export(member=first)
    crew.add().end()
    first.leave()

    error = crew.add().error_of()

    text = "the trained model was lost with all trainers, and there is no checkpoint"
    assert error == f"TrainingError: {text}: start the job again, with checkpoints"
    assert master.service.status()["reason"] == f"trainer-1: {text}"


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
