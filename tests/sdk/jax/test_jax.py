"""`edl.jax` with the jax of `make jax`, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
JAX = Path(os.environ.get("EDL_JAX_PATH") or ROOT / "build/jax")


@pytest.mark.timeout(200)  # jax is imported, on cores that others share
@pytest.mark.skipif(not (JAX / "jax").exists(), reason="no jax here: `make jax` installs it")
def test_facts_hold() -> None:
    """All of `jax_rounds.py`, each fact by its name."""
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.sdk.jax.jax_rounds"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{JAX}:{ROOT}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
