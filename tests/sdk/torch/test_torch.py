"""`edl.torch` with the torch of `make torch`, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or ROOT / "build/torch")
STANDIN = ROOT / "build/standin"
"""Where this folder is on the path, torch has one accelerator, which keeps the rules of a GPU."""
FACTS = ("checkpoints", "groups", "local", "models", "pods", "steps", "training")

pytestmark = [
    pytest.mark.timeout(300),  # torch is imported, on cores that others share
    pytest.mark.skipif(
        not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
    ),
]


@pytest.mark.parametrize("about", FACTS)
def test_facts_hold(about: str) -> None:
    """All of `torch_groups.py` and the other files of facts, each fact by its name."""
    check(about, f"{TORCH}:{ROOT}")


@pytest.mark.skipif(not STANDIN.exists(), reason="no stand-in here: `make torch` compiles it")
@pytest.mark.parametrize("about", [about for about in FACTS if about != "pods"])
def test_facts_hold_on_a_device(about: str) -> None:
    """The same with models on an accelerator: gloo cannot send from it, and copies to the host are late."""
    check(about, f"{TORCH}:{STANDIN}:{ROOT}")


def check(about: str, path: str) -> None:
    """Checks a file of facts in a process that finds torch, and perhaps the device, on this path."""
    completed = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-W", "ignore", "-m", f"tests.sdk.torch.torch_{about}"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
