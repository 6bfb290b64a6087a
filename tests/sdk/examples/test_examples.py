"""The examples, as a user runs them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import edl
import numpy as np
import pytest

from tests.sdk.support.digits import example
from tests.sdk.support.loops import until
from tests.sdk.support.trainers import LIMIT_S, Job

pytestmark = pytest.mark.timeout(240)  # whole programs, on cores that others share

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples/numpy_digits/train.py"
PADDLE = Path(os.environ.get("EDL_PADDLE_PYTHON") or ROOT / "build/paddle/bin/python")
"""An interpreter that has paddlepaddle; too large for the tools of this project."""
EPOCHS, TRAINED = 5, 1437


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A master, and trainers that end with the test."""
    job_ = Job(tmp_path)
    yield job_
    job_.close()


def _model(out: Path) -> tuple[Any, float]:
    """The model that an example in numpy has written, and its accuracy on images held out."""
    train = example()
    images, labels = train.digits()
    weights, _ = train.load(out / train.MODEL)
    return weights, train.accuracy(weights, images[-train.TEST :], labels[-train.TEST :])


def test_the_numpy_example_learns_when_trainers_are_killed(job: Job, tmp_path: Path) -> None:
    """One is killed and started again, one leaves, one comes; each record counts once an epoch."""
    train = example()
    images, labels = train.digits()
    data = edl.from_arrays("digits", images[: -train.TEST], labels[: -train.TEST])
    options: Any = {"epochs": EPOCHS, "shuffle_seed": 1, "task_records": train.BATCH}
    holder = edl.batches(data, train.BATCH, prefetch=1, member=job.join("holder"), **options)
    holding = iter(holder)
    next(holding)  # the first epoch is not over before this batch is given back
    words = (DIGITS, "--out", tmp_path / "out", "--epochs", str(EPOCHS))
    killed, leaving = job.start("trainer-0", *words), job.start("trainer-1", *words)
    until(lambda: {"trainer-0", "trainer-1"} <= job.status["trainers"].keys(), LIMIT_S)
    until(lambda: job.done("digits") > 1000, LIMIT_S)
    killed.process.kill()
    again, late = job.start("trainer-0", *words), job.start("trainer-2", *words)
    leaving.process.terminate()
    holder.close()

    assert [process.ends() for process in (again, late)] == [0, 0], again.text + late.text
    assert [process.ends() for process in (killed, leaving)] == [-9, 143]
    assert job.done("digits") == EPOCHS * TRAINED
    assert _model(tmp_path / "out")[1] > 0.8


def test_who_lags_does_not_hold_the_example_back(tmp_path: Path) -> None:
    """Weights of dead or new trainers count less; equally old weights count equally."""
    train = example()
    trained, other, fresh = (train.fresh(seed) for seed in range(3))
    train.save(tmp_path / "a.npz", trained, 90)
    train.save(tmp_path / "gone.npz", other, 90 - 8 * train.AVERAGE_EVERY)
    train.save(tmp_path / "new.npz", fresh, 1)
    weights, age = train.mean(tmp_path)

    assert age == 90
    for name, array in trained.items():
        np.testing.assert_allclose(weights[name], array, atol=0.01)

    train.save(tmp_path / "b.npz", other, 90)
    weights, _ = train.mean(tmp_path)
    for name, array in trained.items():
        np.testing.assert_allclose(weights[name], (array + other[name]) / 2, atol=0.01)


def test_a_trainer_of_the_example_that_comes_late_begins_where_the_others_are(
    tmp_path: Path,
) -> None:
    """Without saved weights all start from the same initial ones."""
    train = example()
    first, age = train.mean(tmp_path)
    assert age == 0
    for name, array in train.fresh().items():
        np.testing.assert_array_equal(first[name], array)

    trained = train.fresh(7)
    train.save(tmp_path / "trainer-0.npz", trained, 12)
    weights, age = train.mean(tmp_path)

    assert age == 12
    for name, array in trained.items():
        np.testing.assert_array_equal(weights[name], array)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_the_numpy_example_learns_whatever_happens_when(tmp_path: Path, seed: int) -> None:
    """By `edl run`: trainers and the master are killed, some leave and come, at random moments."""
    chance = Random(seed)  # noqa: S311 - the same moments in every run
    acts = ["kill", "kill master", "+2", "kill", "-1"]
    schedule = ", ".join(f"{chance.uniform(1, 99):.0f}%:{act}" for act in acts)
    words = ("--out", str(tmp_path), "--epochs", str(EPOCHS))
    run = _run("-m", "edl", "run", "-n", "4", "--schedule", schedule, str(DIGITS), *words)

    assert f"{EPOCHS * TRAINED} of {EPOCHS * TRAINED} records acknowledged" in run
    assert _model(tmp_path)[1] > 0.8


def test_a_program_with_its_own_collectives_continues_with_the_remaining_members(
    job: Job, tmp_path: Path
) -> None:
    """A member is killed in a step, one comes, one leaves; no record is left out, and it learns.

    Who comes when all is trained does not hide what was.
    """
    train = example("own_collectives/train_rounds.py")
    holder = edl.batches(
        train.data(), train.BATCH, epochs=train.EPOCHS, prefetch=1, member=job.join("holder")
    )
    holding = iter(holder)
    next(holding)  # the first epoch is not over before this batch is given back
    words = (Path(str(train.__file__)), "--out", tmp_path / "out")
    first, killed = job.start("trainer-0", *words), job.start("trainer-1", *words)
    first.says(" of 2, step")
    killed.says(" of 2, step")
    killed.process.kill()
    first.says(" is over: ")
    again = job.start("trainer-1", *words)
    again.says(" of 2, step")
    first.process.terminate()
    holder.close()

    assert again.ends() == 0, again.text
    assert [process.ends() for process in (killed, first)] == [-9, 143]
    assert job.done("plane") == 6144
    assert "[1. 2. 3. 4. 5. 6. 7. 8.]" in again.text

    late = job.start("trainer-2", *words)
    assert late.ends() == 0, late.text
    newest = edl.latest_checkpoint(tmp_path / "out")
    assert "weights after 0 steps" in late.text
    assert newest is not None
    np.testing.assert_allclose(newest.arrays()["weights"], np.arange(1, 9), atol=0.01)


def _run(*arguments: str) -> str:
    """What one of our programs prints."""
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=220
    ).stdout


with_paddle = pytest.mark.skipif(
    not PADDLE.exists(), reason="no paddlepaddle here: `make paddle` installs it"
)
LAST = re.compile(r"test accuracy (\d\.\d+) after (\d+) steps")


@with_paddle
def test_the_paddle_example_learns(job: Job, tmp_path: Path) -> None:
    """One trainer; what it has saved last is the model that it has in the end."""
    process = job.start("trainer-0", *_paddle(tmp_path, epochs=3), python=str(PADDLE))
    assert process.ends() == 0, process.text
    ((accuracy, steps),) = LAST.findall(process.text)
    newest = edl.latest_checkpoint(tmp_path / "out")

    assert float(accuracy) > 0.8
    assert newest is not None
    assert newest.step == int(steps) == 3 * 45
    assert job.done("digits") == 3 * TRAINED


@with_paddle
@pytest.mark.soak
def test_the_paddle_example_keeps_the_model_that_was_trained_most(job: Job, tmp_path: Path) -> None:
    """Each trainer its own; one is killed and started again, which begins at the newest."""
    words = _paddle(tmp_path, epochs=6)
    first, killed = (job.start(f"trainer-{n}", *words, python=str(PADDLE)) for n in range(2))
    until(lambda: job.done("digits") > TRAINED, LIMIT_S)
    killed.process.kill()
    again = job.start("trainer-1", *words, python=str(PADDLE))
    assert [process.ends() for process in (first, again)] == [0, 0], first.text + again.text
    steps, accuracy = max(
        (int(steps), float(right)) for right, steps in LAST.findall(first.text + again.text)
    )
    newest = edl.latest_checkpoint(tmp_path / "out")

    assert accuracy > 0.8
    assert newest is not None
    assert newest.step == steps
    assert job.done("digits") == 6 * TRAINED


def _paddle(folder: Path, *, epochs: int) -> tuple[str | Path, ...]:
    program = ROOT / "examples/paddle_digits/train_paddle.py"
    return program, "--out", folder / "out", "--epochs", str(epochs)
