"""`edl train` with the examples in PaddlePaddle, as a user runs them; whole jobs in `make soak`."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sdk.commands.calls import ROOT, assert_predicts_as_well, call_edl
from tests.sdk.support.trainers import Job

PADDLE = Path(os.environ.get("EDL_PADDLE_PYTHON") or ROOT / "build/paddle/bin/python")
"""An interpreter that has paddlepaddle; too large for the tools of this project."""
DIGITS = ROOT / "examples/models/digits.py"

pytestmark = [
    pytest.mark.timeout(240),  # whole jobs, on cores that others share
    pytest.mark.skipif(
        not PADDLE.exists(), reason="no paddlepaddle here: `make paddle` installs it"
    ),
]

Edl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def edl(tmp_path: Path) -> Edl:
    """Calls `edl`, with trainers that have PaddlePaddle, and waits for its end."""
    return lambda *words: call_edl(tmp_path, *words, "--python", str(PADDLE))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A master, and trainers that end with the test."""
    job_ = Job(tmp_path)
    yield job_
    job_.close()


def _common(data: Path) -> list[str]:
    command = ["-m", "edl", "train", str(DIGITS), "--data", str(data / "digits-train.npz")]
    return [*command, "--evaluate", str(data / "digits-test.npz"), "--batch-size", "32"]


def _accuracy(text: str) -> float:
    match = re.search(r"^edl: .*evaluation of step \d+: .*accuracy ([\d.]+)", text, re.MULTILINE)
    assert match is not None, text
    return float(match[1])


def test_digits_are_learned(job: Job, data: Path, tmp_path: Path) -> None:
    """Trained, exported, and used by one trainer: predictions are as good as the evaluation."""
    trained = job.start(
        "trainer-0", *_common(data), "--epochs", "4", "--export", "model", python=str(PADDLE)
    )
    assert trained.ends() == 0, trained.text
    test, other = data / "digits-test.npz", Job(tmp_path / "prediction")
    words = ("-m", "edl", "predict", DIGITS, "--data", test, "--model", tmp_path / "model")
    arguments = ("--output", "out", "--join", "all.npz")
    predicted = other.start("trainer-0", *words, *arguments, python=str(PADDLE))
    code, text = predicted.ends(), predicted.text
    other.close()

    assert code == 0, text
    assert _accuracy(trained.text) > 0.6
    assert_predicts_as_well(tmp_path / "prediction/all.npz", test, _accuracy(trained.text))


@pytest.mark.soak
def test_digits_are_learned_while_trainers_join_and_leave(
    edl: Edl, data: Path, tmp_path: Path
) -> None:
    """Trained, exported, and used: predictions are as good as the evaluation."""
    schedule = "20%:kill trainer-0, 30%:+1, 60%:-1"
    words = ("--epochs", "5", "-n", "2", "--export", "model", "--schedule", schedule)
    done = edl(*_common(data)[2:], *words)
    test = data / "digits-test.npz"
    words = ("--data", str(test), "--model", "model", "--output", "out", "--join", "all.npz")
    predicted = edl("predict", str(DIGITS), *words, "-n", "1")

    assert done.returncode == 0, done.stdout
    assert _accuracy(done.stdout.splitlines()[-1]) > 0.85
    assert predicted.returncode == 0, predicted.stdout
    assert_predicts_as_well(tmp_path / "all.npz", test, _accuracy(done.stdout.splitlines()[-1]))


@pytest.mark.soak
def test_parameter_servers_learn_digits_too(edl: Edl, data: Path) -> None:
    """A trainer that is asked to leave does so in good order, PaddlePaddle's handlers or not."""
    words = ("--async", "--epochs", "6", "-n", "2", "--schedule", "40%:-1")
    done = edl(*_common(data)[2:], *words)

    assert done.returncode == 0, done.stdout
    assert _accuracy(done.stdout.splitlines()[-1]) > 0.85
    assert "trainer-1 ended: left (143)" in done.stderr


def test_too_little_memory_is_said_in_one_line(job: Job, data: Path, tmp_path: Path) -> None:
    """As PaddlePaddle says it: which trainer, step and batch, and what to change."""
    text = DIGITS.read_text()
    (tmp_path / "digits.py").write_text(
        text.replace(
            "    return nn.functional.cross",
            "    paddle.zeros([1 << 46])\n    return nn.functional.cross",
        )
    )
    words = _common(data)
    words[words.index(str(DIGITS))] = "digits.py"
    done = job.start("trainer-0", *words, python=str(PADDLE))

    assert done.ends() == 1, done.text
    assert re.search(
        r"edl: out of memory at step 1, micro-batch 1 of 4 records on trainer-\d, .*"
        r"lower --batch-size or raise --micro-batches",
        done.text.splitlines()[-1],
    ), done.text
