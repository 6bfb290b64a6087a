"""The adapter of PaddlePaddle, in the interpreter that has it."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PADDLE = Path(os.environ.get("EDL_PADDLE_PYTHON") or ROOT / "build/paddle/bin/python")

pytestmark = [
    pytest.mark.timeout(180),  # PaddlePaddle is imported, on cores that others share
    pytest.mark.skipif(
        not PADDLE.exists(), reason="no paddlepaddle here: `make paddle` installs it"
    ),
]


@pytest.mark.parametrize("about", ["replica", "worker", "files", "places"])
def test_facts_hold(about: str) -> None:
    """All of `paddle_replica.py` and the other files of facts, each fact by its name."""
    completed = subprocess.run(  # noqa: S603 - our own program
        [PADDLE, "-W", "ignore", "-m", f"tests.sdk.model.paddle_{about}"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
