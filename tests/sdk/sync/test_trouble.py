"""Errors while members train together: each member reports them in one line, and nothing hangs."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import edl
import numpy as np
import pytest
from edl import Session, Settings, clock
from edl.sync import Micro, State

from tests.master.serving import TOKEN, Served
from tests.sdk.sync.crews import Crew, Gate, Trainer, meet
from tests.sdk.sync.replicas import Softmax, data

NAN = float("nan")


class Failing(Softmax):
    """A replica whose loss is not finite in these steps, counted from 0; other metrics are."""

    def __init__(self, *steps: int) -> None:
        super().__init__(1)
        self._steps = steps

    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        """As in `Replica`."""
        metrics = super().backward(records, weight, micro)
        return {**metrics, "loss": NAN} if micro.step in self._steps else metrics


class Exploding(Softmax):
    """A replica whose gradient has one infinite or huge number in a step; its loss is finite."""

    def __init__(self, step: int, number: float) -> None:
        super().__init__(1)
        self._step, self._number, self._here = step, number, False

    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        """As in `Replica`."""
        self._here = micro.step == self._step
        return super().backward(records, weight, micro)

    def read_gradient(self, out: Any) -> None:
        """As in `Replica`."""
        super().read_gradient(out)
        if self._here:
            out[7] = self._number


class Turned(Softmax):
    """A replica with the same number of parameters in another shape."""

    def load(self, state: State) -> None:
        """As in `Replica`."""
        shape = state.arrays["weights"].shape
        raise edl.CheckpointError(f"weights is {shape}, here {self.weights.T.shape}")


def _one_line(text: str) -> str:
    assert "\n" not in text
    return text


def _reason(master: Served) -> str:
    return str(master.service.status()["reason"])


def test_a_loss_that_is_no_number_fails_the_job(master: Served) -> None:
    """All members name the step, the member with that loss, and possible remedies."""
    members = Crew(master).pair(Gate(2), Softmax(), Failing(3, 4))

    errors = {_one_line(trainer.error_of()) for trainer in members}

    text = (
        "step 4: trainer-1: loss is nan in micro-batch 3: the job fails (on_nan=skip would skip "
        "such steps; a smaller learning rate may avoid them)"
    )
    assert errors == {f"TrainingError: {text}"}
    assert master.service.status()["state"] == "failed"
    assert _reason(master) == f"trainer-0: {text}"


def test_a_loss_that_is_no_number_can_be_left_out(master: Served) -> None:
    """The step counts, and changes nothing; all members agree."""
    members = Crew(master, on_nan="skip").pair(Gate(2), Softmax(), Failing(3, 4))

    results = [trainer.end() for trainer in members]

    assert {(result.steps, result.skipped, result.whole) for result in results} == {(32, 2, True)}
    first, second = (trainer.replica for trainer in members)
    assert isinstance(first, Softmax)
    assert isinstance(second, Softmax)
    assert np.array_equal(first.weights, second.weights)
    assert len(first.scales) == 30


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (
            Softmax(),
            "step 4: trainer-1: the loss is finite, but its gradient is NaN or infinite: the job",
        ),
        (Exploding(3, 3e38), "step 4: the sum of all gradients is infinite: the job fails"),
    ],
)
def test_a_gradient_that_is_not_finite_fails_the_job(
    master: Served, first: Softmax, text: str
) -> None:
    """All members see it in the sum, so none applies it and calls that a success."""
    number = float("inf") if type(first) is Softmax else 3e38
    members = Crew(master).pair(Gate(2), first, Exploding(3, number))

    errors = {_one_line(trainer.error_of()) for trainer in members}

    assert {error[: len(text) + 15] for error in errors} == {f"TrainingError: {text}"}
    assert master.service.status()["state"] == "failed"


def test_a_gradient_that_is_not_finite_can_be_left_out(master: Served) -> None:
    """The parameters stay finite and equal; also of a member that trains alone."""
    members = Crew(master, on_nan="skip").pair(Gate(2), Softmax(), Exploding(3, NAN))
    results = [trainer.end() for trainer in members]

    assert {(result.steps, result.skipped, result.whole) for result in results} == {(32, 1, True)}
    first, second = (trainer.replica for trainer in members)
    assert isinstance(first, Softmax)
    assert isinstance(second, Softmax)
    assert np.array_equal(first.weights, second.weights)
    assert np.isfinite(first.weights).all()


def test_a_trainer_alone_does_not_apply_a_gradient_that_is_not_finite(master: Served) -> None:
    """It exchanges nothing, and checks its own."""
    crew = Crew(master)
    crew.add(replica=Exploding(3, NAN))

    assert "step 4: trainer-0: the loss is finite, but" in _one_line(crew.trainers[0].error_of())


def test_a_model_that_is_no_number_any_more_fails_the_job(master: Served) -> None:
    """Steps are not skipped for ever: all data would be acknowledged and nothing learned."""
    crew = Crew(master, on_nan="skip")
    crew.add(replica=Failing(*range(5, 100)))

    text = _one_line(crew.trainers[0].error_of())

    assert text == (
        "TrainingError: step 26: trainer-0: loss is nan in micro-batch 3: 20 consecutive steps "
        "were skipped before, the parameters may no longer be finite: the job fails (continue from a "
        "checkpoint with a smaller learning rate)"
    )
    assert master.service.status()["state"] == "failed"


def _broken(*records: int) -> edl.Dataset:
    inputs, labels = data(256).source.read(None, 0, 256)

    def read(number: int) -> Any:
        if number in records:
            raise ValueError("bad checksum")
        return inputs[number], labels[number]

    def collate(records: list[Any]) -> Any:
        return np.stack([label for label, _ in records]), np.array(
            [inputs for _, inputs in records]
        )

    return edl.from_function("points", read, 256, collate)


def test_a_record_that_cannot_be_read_is_left_out_with_its_task(master: Served) -> None:
    """After several tries; the others continue, and the status names the record."""
    members = Crew(master, dataset=_broken(40), epochs=1).pair(Gate(2))

    results = [trainer.end() for trainer in members]

    status = master.service.status()
    dropped = status["datasets"]["points"]["dropped_records"]
    assert {(result.whole, result.records) for result in results} == {(True, 256 - dropped)}
    assert 0 < dropped <= 32
    assert [task["error"] for task in status["dropped"]] == ["record 40: ValueError: bad checksum"]


def test_too_many_of_them_fail_the_job_and_nobody_thinks_that_it_is_done(tmp_path: Path) -> None:
    """Trainers return, and report that the data was not trained to its end."""
    master = Served(tmp_path / "journal", max_dropped_share=0.0)
    members = Crew(master, dataset=_broken(40), epochs=1).pair(Gate(2))

    results = [trainer.end() for trainer in members]

    assert {result.whole for result in results} == {False}
    assert "record 40: ValueError: bad checksum" in _reason(master)
    master.stop()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"code": {"model": "b2"}}, "code.model is 'b2' with trainer-2, but 'a1' with"),
        (
            {"replica": Softmax(features=17)},
            "code.gradient is '72 numbers' with trainer-2, but '68",
        ),
        ({"batch_size": 16}, "code.batch is '16 records in 4 micro-batches' with"),
        ({"dataset": data(256)}, "code.data is 'points of 256 records,"),
        ({"epochs": 9}, "epochs 9, shuffle_seed 3' with trainer-2"),
    ],
)
def test_a_newcomer_of_another_program_is_refused(
    master: Served, changes: dict[str, Any], field: str
) -> None:
    """With one line that names what differs; the others continue."""
    crew, gate = Crew(master, code={"model": "a1"}), Gate(2, at=6)
    members = crew.pair(gate)[:]
    assert gate.reached.wait(60)

    text = _one_line(crew.add(**changes).error_of())
    gate.open.set()

    assert text.startswith("Refused: code.")
    assert field in text
    assert {trainer.end().whole for trainer in members} == {True}
    assert {step.world_size for step in members[1].steps} == {2}


def test_a_newcomer_whose_arrays_have_other_shapes_leaves_the_others_alone(master: Served) -> None:
    """It cannot load the state, names the array, and the others continue."""
    crew, gate = Crew(master), Gate(2, at=6)
    members = crew.pair(gate)[:]
    assert gate.reached.wait(60)
    newcomer = crew.add(replica=Turned())
    meet(members[0], 3)
    gate.open.set()

    text = _one_line(newcomer.error_of())

    assert text == "CheckpointError: weights is (17, 4), here (4, 17)"
    assert {trainer.end().whole for trainer in members} == {True}


def test_a_checkpoint_of_another_model_fails_the_job(master: Served, tmp_path: Path) -> None:
    """The reader's error and the status name it."""
    folder = tmp_path / "checkpoints"
    Crew(master, checkpoints=folder).add().end()
    other = Served(tmp_path / "other")
    crew = Crew(other, checkpoints=folder)

    text = _one_line(crew.add(replica=Softmax(features=12)).error_of())

    assert text == "CheckpointError: weights is (17, 4), here (13, 4)"
    assert _reason(other) == "trainer-0: weights is (17, 4), here (13, 4)"
    other.stop()


def test_a_folder_without_a_synchronous_jobs_checkpoint_is_named(
    master: Served, tmp_path: Path
) -> None:
    """Such as one that `edl.save_checkpoint` wrote for a loop of one trainer."""
    folder = tmp_path / "checkpoints"
    saver = Session(Settings(f"http://127.0.0.1:{master.port}", TOKEN, "saver"))
    assert edl.save_checkpoint(folder, {"weights": np.zeros(3)}, step=1, member=saver)
    saver.leave()

    text = _one_line(Crew(master, checkpoints=folder).add(name="other").error_of())

    assert "is not a checkpoint of a synchronous job" in text
    assert text.endswith("name another folder, or remove it")


def test_a_master_that_does_not_come_back_ends_all(master: Served) -> None:
    """Once no records are left to train on and `patience_s` has passed."""
    members = Crew(master, patience_s=1.0).pair(Gate(2))
    master.kill()

    for trainer in members:
        assert trainer.error_of().startswith("Unavailable: ")


def test_a_trainer_started_anew_ends_the_one_before(master: Served) -> None:
    """Two processes of one name: the newer one counts, the older one reports why it ends."""
    crew, gate = Crew(master), Gate(2, at=6)
    members = crew.pair(gate)[:]
    assert gate.reached.wait(60)
    again = crew.add(name="trainer-1")
    assert _is_stopping(members[1])
    gate.open.set()

    assert "another process has this name" in members[1].error_of()
    assert members[0].end().whole
    assert again.end().whole


def _is_stopping(trainer: Trainer) -> bool:
    """Whether its session has received that it is to stop."""
    until_s = clock.monotonic_s() + 60
    while not trainer.member.stopping and clock.monotonic_s() < until_s:
        threading.Event().wait(0.02)
    return trainer.member.stopping


def test_arguments_that_cannot_be_are_named(master: Served, tmp_path: Path) -> None:
    """Before anybody is called."""
    crew = Crew(master)
    for changes, text in (
        ({"batch_size": 0}, "batch_size is 0: it must be at least 1"),
        ({"micro_batches": 0}, "micro_batches is 0: it must be at least 1"),
        (
            {"micro_batches": 33},
            (
                "micro_batches is 33, but a step has 32 records (batch_size): a micro-batch needs "
                "at least one"
            ),
        ),
        ({"on_nan": "ignore"}, "on_nan is 'ignore': write one of fail, skip"),
        (
            {"checkpoint_steps": -1, "checkpoints": tmp_path},
            "checkpoint_steps is -1: it must be at least 0",
        ),
        ({"checkpoint_steps": 5}, "checkpoint_steps is given, but no folder for checkpoints"),
    ):
        assert crew.add(**changes).error_of() == f"DataError: {text}"
