"""`edl.torch` with the torch of `make torch`, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or ROOT / "build/torch")

pytestmark = [
    pytest.mark.timeout(300),  # torch is imported, on cores that others share
    pytest.mark.skipif(
        not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
    ),
]


@pytest.mark.parametrize(
    "about", ["checkpoints", "groups", "local", "models", "pods", "steps", "training"]
)
def test_facts_hold(about: str) -> None:
    """All of `torch_groups.py` and the other files of facts, each fact by its name."""
    completed = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-W", "ignore", "-m", f"tests.sdk.torch.torch_{about}"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{TORCH}:{ROOT}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
