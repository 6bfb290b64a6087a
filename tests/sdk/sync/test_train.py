"""Synchronous training with a real master: members come, go and die."""

import threading
from pathlib import Path

import edl
import numpy as np
import pytest
from edl import Session, Settings
from edl.master.protocol import Round
from edl.master.rendezvous import Rendezvous
from edl.master.session import Loop

from tests.master.serving import TOKEN, Served
from tests.sdk.sync.crews import Crew, Gate, Trainer, together
from tests.sdk.sync.replicas import Floats, Softmax, data


def test_one_trainer_trains_it_all(master: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of 512 records in steps of 32, in a round that nobody has broken off."""
    calls: list[tuple[int, bool]] = []
    wait_for_round = Rendezvous.next

    def record_call(self: Rendezvous, after: int, *, broken: bool = False) -> Round:
        calls.append((after, broken))
        return wait_for_round(self, after, broken=broken)

    monkeypatch.setattr(Rendezvous, "next", record_call)
    crew = Crew(master)
    trainer = crew.add()

    result = trainer.end()

    assert calls == [(0, False)]
    assert (result.steps, result.records, result.whole) == (32, 1024, True)
    assert result.metrics["accuracy"] > 0.9
    assert [step.epoch for step in trainer.steps] == [0] * 16 + [1] * 16
    progress = master.service.status()["datasets"]["points"]
    assert progress["done_records"] == 1024
    assert master.service.ledger.datasets["points"].shape["overlap"], "epochs wait for no straggler"


def test_a_program_may_choose_the_records_of_a_task(master: Served) -> None:
    """Else they are those of a step."""
    trainer = Crew(master, epochs=1, task_records=100).add()

    assert trainer.end().whole
    assert master.service.ledger.datasets["points"].partitioning.count == 6


@pytest.mark.parametrize("world_size", [2, 3])
def test_members_end_with_the_same_weights_as_one_alone(
    master: Served, tmp_path: Path, world_size: int
) -> None:
    """Whichever member computes a part of a step, the sum is the same but for rounding."""
    other = Served(tmp_path / "other")
    alone = Crew(other).add(replica=Softmax(0))
    assert alone.end().whole
    other.stop()
    crew = Crew(master)
    for seed in range(world_size):
        crew.add(lambda trainer, step: together(trainer, step, world_size), Softmax(seed))
        assert crew.trainers[0].began.wait(60)  # its weights are those that all begin with

    results = [trainer.end() for trainer in crew.trainers]

    assert [(result.whole, result.late, result.records) for result in results] == [
        (True, False, 1024)
    ] * world_size
    assert sum(step.world_size == world_size for step in crew.trainers[0].steps) >= 24
    first, *others = [_weights(trainer) for trainer in crew.trainers]
    assert all(np.array_equal(first, weights) for weights in others)
    assert np.allclose(first, _weights(alone), rtol=1e-3, atol=1e-4)
    assert not np.allclose(first, Softmax(0).weights, rtol=1e-1, atol=1e-1)


def _weights(trainer: Trainer) -> Floats:
    assert isinstance(trainer.replica, Softmax)
    return trainer.replica.weights


def test_a_trainer_that_comes_late_has_nothing_to_do(master: Served) -> None:
    """The job is done: the trainer ends at once, and no rollback is reported."""
    crew = Crew(master)
    crew.add().end()

    late = crew.add().end()

    assert (late.whole, late.late, late.steps) == (True, True, 0)
    assert master.service.status()["setbacks"]["count"] == 0


class Slow(Session):
    """The session of a trainer that reads the job's status, and is admitted only later."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.status_read, self.let_in = threading.Event(), threading.Event()

    def register(self, loop: Loop) -> None:
        """As in `Session`."""
        self.status_read.set()
        assert self.let_in.wait(60)
        super().register(loop)


def test_whoever_is_let_in_as_the_job_ends_has_nothing_to_do_either(master: Served) -> None:
    """It read the status while the job ran, and leads a round alone when all others are gone."""
    crew, gate = Crew(master), Gate(1, at=6)
    first = crew.add(gate)
    assert gate.reached.wait(60)
    slow = Slow(Settings(f"http://127.0.0.1:{master.port}", TOKEN, "slow"))
    late = crew.add(member=slow)
    assert slow.status_read.wait(60)
    gate.open.set()
    assert not first.end().late
    slow.let_in.set()

    result = late.end()

    assert (result.whole, result.late, result.steps) == (True, True, 0)
    assert master.service.status()["setbacks"]["count"] == 0


def test_a_trained_model_that_is_lost_fails_the_job(master: Served) -> None:
    """All data was trained, the export is still to be made, and no trainer has the model."""
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
    """The same processes, in the same job: the second data set has rounds of its own."""
    crew = Crew(master, epochs=1, stays=True)
    first = [crew.add() for _ in range(2)]
    results = [trainer.end() for trainer in first]
    assert {result.records for result in results if result.rounds} == {512}

    second = [
        crew.add(dataset=data(256, "more"), member=trainer.member, replica=trainer.replica)
        for trainer in first
    ]

    assert {(trainer.end().whole, trainer.end().records) for trainer in second} == {(True, 256)}
    assert master.service.status()["state"] == "done"
    for trainer in first:
        trainer.member.leave()
