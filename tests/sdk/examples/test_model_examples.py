"""The examples of the model interface, by the commands that their first lines name."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.sdk.support.trainers import Lone

pytestmark = pytest.mark.timeout(240)  # whole jobs of several processes, on cores that others share

ROOT = Path(__file__).parents[3]
MODELS = ROOT / "examples/models"
PADDLE = Path(os.environ.get("EDL_PADDLE_PYTHON") or ROOT / "build/paddle/bin/python")
"""An interpreter that has paddlepaddle; too large for the tools of this project."""
with_paddle = pytest.mark.skipif(
    not PADDLE.exists(), reason="no paddlepaddle here: `make paddle` installs it"
)


def _run(*arguments: str | Path) -> str:
    """What a command says; it must end well."""
    done = subprocess.run(  # noqa: S603 - our own programs
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that `make_data.py` fills."""
    program, folder = MODELS / "make_data.py", tmp_path / "data"
    monkeypatch.setattr(sys, "argv", [str(program), str(folder)])
    runpy.run_path(str(program), run_name="__main__")
    return folder


def _train(name: str, data: Path, kind: str, *arguments: str | Path) -> float:
    """Trains an example, and returns its accuracy on the records held out."""
    train, test = (next(data.glob(f"{kind}-{part}.*")) for part in ("train", "test"))
    command = ("-m", "edl", "train", MODELS / f"{name}.py", "--data", train, "--evaluate", test)
    text = _run(*command, "--seed", "1", *arguments)
    return _accuracy(text.splitlines()[-1])


def _accuracy(last: str) -> float:
    """What the last line of a run says."""
    match = re.search(r"^edl: .* is trained: .*evaluation of .*accuracy (\d\.?\d*)", last)
    assert match is not None, last
    return float(match[1])


def test_digits_in_numpy_are_learned(data: Path, lone: Lone) -> None:
    """By one trainer that takes part in each step."""
    words = ("train", str(MODELS / "digits_numpy.py"), "--epochs", "4", "--seed", "1")
    files = ("--data", f"{data}/digits-train.npz", "--evaluate", f"{data}/digits-test.npz")
    done = lone(*words, *files)

    assert done.code == 0, done.err
    assert _accuracy(done.last) > 0.85


@pytest.mark.soak  # `make test` trains asynchronously in test_train_async
def test_digits_in_numpy_are_learned_with_parameter_servers(data: Path) -> None:
    """By one trainer and one server; with more trainers how well depends on who is how fast."""
    arguments = ("--async", "--servers", "1", "-n", "1", "--epochs", "4")

    assert _train("digits_numpy", data, "digits", *arguments) > 0.85


@pytest.mark.soak
@pytest.mark.parametrize("mode", [("--sync",), ("--async", "--max-staleness", "1")])
def test_digits_in_numpy_are_learned_when_trainers_are_killed(
    data: Path, mode: tuple[str, ...]
) -> None:
    """By two trainers; one is killed on the way and another one comes."""
    schedule = ("--schedule", "30%:+1, 50%:kill trainer-0")

    assert _train("digits_numpy", data, "digits", *mode, "--epochs", "10", *schedule) > 0.85


@with_paddle
@pytest.mark.soak
def test_digits_in_paddle_are_learned_together(data: Path, tmp_path: Path) -> None:
    """A trainer is killed while they learn; what one of them exports predicts as well."""
    schedule = ("--schedule", "40%:+1, 60%:kill trainer-0")
    where = ("--python", PADDLE)
    arguments = ("--epochs", "5", "--batch-size", "32", "--export", tmp_path / "model", *where)
    accuracy = _train("digits", data, "digits", *arguments, *schedule)
    predicted = tmp_path / "all.npz"
    command = ("-m", "edl", "predict", MODELS / "digits.py", "--model", tmp_path / "model", *where)
    output = ("--output", tmp_path / "parts", "--join", predicted)
    _run(*command, "--data", data / "digits-test.npz", *output)
    labels = np.load(data / "digits-test.npz")["labels"]

    assert accuracy > 0.75
    assert np.mean(np.load(predicted)["digit"] == labels) == pytest.approx(accuracy, abs=1e-3)


@with_paddle
@pytest.mark.soak
def test_clicks_are_learned_with_parameter_servers(data: Path) -> None:
    """Embeddings are tables there; trainers come and go."""
    schedule = ("--schedule", "30%:+1, 60%:kill trainer-0")
    accuracy = _train("clicks", data, "clicks", "--async", "--python", PADDLE, *schedule)

    assert accuracy > 0.7
