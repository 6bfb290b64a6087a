"""Pods of two processes that hold a model together (FSDP2), under random changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sdk.torch.test_changes import TORCH

ROOT = Path(__file__).parents[3]
CHANGES = int(os.environ.get("EDL_POD_CHANGES") or 0)
SEED = os.environ.get("EDL_POD_SEED") or "7"
PROGRAM = (sys.executable, "-W", "ignore", "-m", "tests.sdk.torch.pod_storm")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900 + 60 * CHANGES),
    pytest.mark.skipif(
        not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
    ),
    pytest.mark.skipif(not CHANGES, reason="`make pods` makes as many changes as CHANGES says"),
]


def test_pods_come_and_go_without_a_trace(tmp_path: Path) -> None:
    """The loss is within 1e-5 of that of one trainer, the books are exact, and memory is flat."""
    completed = subprocess.run(  # noqa: S603 - our own program
        [*PROGRAM, tmp_path, str(CHANGES), SEED],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{TORCH}:{ROOT}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800 + 60 * CHANGES,
        check=False,
    )
    sys.stdout.write(completed.stdout[-2000:])
    assert completed.returncode == 0, completed.stdout[-5000:] + completed.stderr[-5000:]
