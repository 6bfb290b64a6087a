"""Fixtures of training in PyTorch on a real node; its folder is mounted, as it is too large for an image."""

import os
import re
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from e2e.cluster.machine import python_image
from e2e.environment import Environment
from e2e.real_nodes import real_environment
from e2e.training.fixture import SHARED, WATCHED, Program

_IMAGE = "edl.local/test-torch-training:1"
_MEMORY = "512Mi"
_INSTALLED = Path(os.environ.get("EDL_TORCH_PATH") or python_image.ROOT / "build/torch")
_MOUNTED = "/torch"
_EXAMPLES = python_image.ROOT / "examples"
_PROGRAMS = (
    "torch_digits/train_torch.py",
    "torch_digits/train_torchrun.py",
    "numpy_digits/train.py",
)
_LIBRARY = re.compile(r"=> (/\S+) \(0x")


def torch_environment(place: Path) -> AbstractContextManager[Environment]:
    """One real node of two cores, with EDL; skips the test where the machine lacks requirements."""
    if not (_INSTALLED / "torch").exists():
        pytest.skip("torch is not installed: `make torch` does that")
    files = {WATCHED: Path(__file__).with_name("watched.py")}
    files |= {f"/app/examples/{name}": _EXAMPLES / name for name in _PROGRAMS}
    files |= {str(path): path for path in _libraries()}
    distributions = (python_image.PROJECT, "edl-sdk", "numpy")
    return real_environment(place, _IMAGE, node_count=1, distributions=distributions, files=files)


def torch_program(words: tuple[str, ...], *, pause_s: float = 0.0) -> Program:
    """Returns a program of examples/ in the image of `torch_environment`.

    Args:
        words: Arguments of `python`; "EXAMPLES" stands for the folder of the examples.
        pause_s: After each step, for programs with `edl.torch.Training`.
    """
    paths = f"/app:{python_image.SITE}:{_MOUNTED}"
    env = {"PYTHONPATH": paths, "STEP_PAUSE_S": str(pause_s)}
    words = tuple(
        word.replace("EXAMPLES", "/app/examples").replace("SHARED", SHARED) for word in words
    )
    return Program(_IMAGE, words, _MEMORY, env, {_MOUNTED: _INSTALLED.resolve()})


def _libraries() -> list[Path]:
    """Returns the libraries of this machine that torch's need."""
    files = sorted(map(str, (_INSTALLED / "torch/lib").glob("*.so*")))
    listed = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout  # noqa: S607 - as in the image
    return sorted(
        Path(path) for path in set(_LIBRARY.findall(listed)) if not path.startswith(str(_INSTALLED))
    )
