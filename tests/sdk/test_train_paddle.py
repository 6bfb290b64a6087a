"""`edl train` with the examples in PaddlePaddle, as a user runs them."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples' data."""
    folder = tmp_path_factory.mktemp("data")
    program = [sys.executable, str(ROOT / "examples/models/make_data.py"), str(folder)]
    subprocess.run(program, check=True, timeout=60, capture_output=True)  # noqa: S603 - our own program
    return folder


@pytest.fixture
def edl(tmp_path: Path) -> Edl:
    """Calls `edl`, with trainers that have PaddlePaddle, and waits for its end."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}

    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "edl", *words, "--python", str(PADDLE)],
            capture_output=True,
            text=True,
            timeout=230,
            check=False,
            cwd=tmp_path,
            env={**environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
        )

    return call


def _common(data: Path) -> list[str]:
    found = ["train", str(DIGITS), "--data", str(data / "digits-train.npz")]
    return [*found, "--evaluate", str(data / "digits-test.npz"), "--batch-size", "32"]


def _accuracy(done: "subprocess.CompletedProcess[str]") -> float:
    assert done.returncode == 0, done.stdout
    found = re.search(r"evaluation of step \d+: .*accuracy ([\d.]+)", done.stdout.splitlines()[-1])
    assert found is not None, done.stdout
    return float(found[1])


def test_digits_are_learned_whoever_comes_and_goes(edl: Edl, data: Path, tmp_path: Path) -> None:
    """Trained, exported, and used: predictions are as good as the evaluation said."""
    schedule = "20%:kill trainer-0, 30%:+1, 60%:-1"
    words = ("--epochs", "5", "-n", "2", "--export", "model", "--schedule", schedule)
    done = edl(*_common(data), *words)
    test = str(data / "digits-test.npz")
    words = ("--data", test, "--model", "model", "--output", "out", "--join", "all.npz")
    predicted = edl("predict", str(DIGITS), *words, "-n", "1")

    assert _accuracy(done) > 0.85
    assert predicted.returncode == 0, predicted.stdout
    with np.load(tmp_path / "all.npz") as found, np.load(test) as known:
        right = (found["digit"] == known["labels"]).mean()
    assert right == pytest.approx(_accuracy(done), abs=1e-3)


def test_parameter_servers_learn_digits_too(edl: Edl, data: Path) -> None:
    """A trainer that is asked to leave does so in good order, PaddlePaddle's handlers or not."""
    words = ("--async", "--epochs", "6", "-n", "2", "--schedule", "40%:-1")
    done = edl(*_common(data), *words)

    assert _accuracy(done) > 0.85
    assert "trainer-1 ended: left (143)" in done.stderr


def test_too_little_memory_is_said_in_one_line(edl: Edl, data: Path, tmp_path: Path) -> None:
    """As PaddlePaddle says it: which trainer, step and batch, and what to change."""
    text = DIGITS.read_text()
    (tmp_path / "digits.py").write_text(
        text.replace(
            "    return nn.functional.cross",
            "    paddle.zeros([1 << 46])\n    return nn.functional.cross",
        )
    )
    words = _common(data)
    words[1] = "digits.py"
    done = edl(*words, "-n", "1")

    assert done.returncode == 1
    assert re.search(
        r"edl: out of memory at step 1, micro-batch 1 of 4 records on trainer-\d, .*"
        r"lower --batch-size or raise --micro-batches",
        done.stdout.splitlines()[-2],
    ), done.stdout
