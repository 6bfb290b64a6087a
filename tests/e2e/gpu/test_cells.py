"""The cells of `make gpu` that train whole jobs, played on the stand-in for a GPU."""

import os
import sys
from pathlib import Path

import pytest

from e2e.gpu.catalogue import choose
from e2e.gpu.player import Outcome, play

ROOT = Path(__file__).parents[3]
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or ROOT / "build/torch")
JAX = Path(os.environ.get("EDL_JAX_PATH") or ROOT / "build/jax")
STANDIN = ROOT / "build/standin"
LIMIT_S = 500.0
"""Cells train longer here than on a GPU, on cores that others share."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


def played(name: str, device: str, folder: Path, *paths: Path) -> Outcome:
    """The outcome of a cell whose processes find these folders first."""
    environ = {
        **os.environ,
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT))),
        "PYTHONWARNINGS": "ignore",
    }
    (cell,) = choose([name])
    outcome = play(cell, device, folder, environ, LIMIT_S)
    sys.stdout.write(outcome.log)
    return outcome


@pytest.mark.skipif(not STANDIN.exists(), reason="no stand-in here: `make torch` compiles it")
@pytest.mark.parametrize("name", ["digits", "transformer", "agent"])
def test_torch_trains_on_a_device(name: str, tmp_path: Path) -> None:
    """Trainers are killed and join; all checks of the cell hold, and no process is left."""
    outcome = played(name, "standin", tmp_path, TORCH, STANDIN)
    assert (outcome.state, outcome.problem) == ("passed", "")
    assert float(outcome.figures["kill_s"] or 0) > 0


@pytest.mark.skipif(not (JAX / "jax").exists(), reason="no jax here: `make jax` installs it")
def test_jax_trains_on_the_cpu(tmp_path: Path) -> None:
    """Two members share the CPU, one is lost, and a third one joins."""
    outcome = played("jax", "cpu", tmp_path, JAX)
    assert (outcome.state, outcome.problem) == ("passed", "")
    assert float(outcome.figures["kill_s"] or 0) > 0
