"""The examples, as a user runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import edl
import pytest

from tests.sdk.servers import TOKEN, Server

pytestmark = pytest.mark.timeout(120)  # whole programs, on cores that others share

ROOT = Path(__file__).parents[2]
PADDLE = Path(os.environ.get("EDL_PADDLE_PYTHON") or ROOT / "build/paddle/bin/python")
"""An interpreter that has paddlepaddle; too large for the tools of this project."""


def _train(server: Server, python: str, program: str, *arguments: str) -> list[str]:
    """What two trainers at once say at the end."""
    running = []
    for name in ("trainer-0", "trainer-1"):
        told = {"EDL_MASTER": server.url, "EDL_TOKEN": TOKEN, "EDL_TRAINER": name}
        command = [python, str(ROOT / "examples" / program), *arguments]
        running.append(
            subprocess.Popen(  # noqa: S603 - our own program
                command, env={**os.environ, **told}, stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
        )
    texts = [one.communicate(timeout=100)[0] for one in running]
    assert [one.returncode for one in running] == [0, 0]
    return texts


def _accuracy(text: str) -> float:
    found = re.search(r"test accuracy (\d\.\d+)", text)
    assert found is not None, text
    return float(found[1])


def test_the_numpy_example_learns_whoever_is_killed(tmp_path: Path) -> None:
    """By `edl run`: a trainer is killed, one leaves, two come; each record counts once an epoch."""
    program, out = str(ROOT / "examples/numpy_digits/train.py"), ("--out", str(tmp_path))
    schedule = ["--schedule", "20%:kill, 40%:-1, 50%:+2"]
    run = _run("-m", "edl", "run", "-n", "3", *schedule, program, *out, "--epochs", "5")
    tested = _run(program, "--test", *out)

    assert f"{5 * 1437} of {5 * 1437} records acknowledged" in run
    assert _accuracy(tested) > 0.8


def test_a_program_with_its_own_collectives_goes_on_with_whoever_is_there(tmp_path: Path) -> None:
    """A member is killed in a step, one comes, one leaves; no record is left out, and it learns."""
    program = str(ROOT / "examples/own_collectives/train_rounds.py")
    schedule = ["--schedule", "30%:kill, 50%:+1, 70%:-1"]
    run = _run("-m", "edl", "run", "-n", "3", *schedule, program, "--out", str(tmp_path))

    assert "6144 of 6144 records acknowledged" in run
    assert "[1. 2. 3. 4. 5. 6. 7. 8.]" in run
    assert "rank 1 of 2" in run


def _run(*arguments: str) -> str:
    """What one of our programs prints."""
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=100
    ).stdout


@pytest.mark.skipif(
    not PADDLE.exists(),
    reason="no paddlepaddle here: `make paddle` installs it",
)
def test_the_paddle_example_learns(server: Server, tmp_path: Path) -> None:
    """Each trainer its own model; the newest checkpoint is one of them."""
    program = "paddle_digits/train_paddle.py"
    texts = _train(server, str(PADDLE), program, "--out", str(tmp_path), "--epochs", "6")

    assert min(_accuracy(text) for text in texts) > 0.8
    assert {1} == {task.accepted for task in server.books.state.tasks.values()}
    assert edl.latest_checkpoint(tmp_path) is not None
