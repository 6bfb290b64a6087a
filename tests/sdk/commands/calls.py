"""Calls of `edl` as a user makes them, and what its predictions are worth."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
_LIMIT_S = 230
"""Ends a hang."""


def call_edl(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Calls `edl` in a folder, and waits for its end.

    Args:
        folder: The working directory, which is also for temporary files.
        words: The command's words.
        variables: Variables besides those of the test, of which the ones of EDL are left out.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "edl", *words],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
        cwd=folder,
        env={**environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1", **variables},
    )


def assert_predicts_as_well(outputs: Path, test: Path, accuracy: float) -> None:
    """Predictions of an exported model are as good as the evaluation of its job."""
    with np.load(outputs) as archive, np.load(test) as test_data:
        right = np.mean(archive["digit"] == test_data["labels"])
    assert right == pytest.approx(accuracy, abs=1e-3)
