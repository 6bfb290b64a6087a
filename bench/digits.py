"""What the benchmarks of synchronous training train: the examples' digits, by both frameworks."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PADDLE = ROOT / "build/paddle/bin/python"
"""Made by `make paddle`."""
BATCH = 32
STEPS_AN_EPOCH = 45
_MAKE_S = 120.0


@dataclass(frozen=True, slots=True)
class Flavour:
    """A model, and the interpreter that has its framework."""

    name: str
    python: str
    options: dict[str, Any]
    """For `tests.sdk.sync.program`."""


def flavours(folder: Path) -> list[Flavour]:
    """Numpy, and PaddlePaddle where it is installed; with their data in a folder."""
    has_paddle = PADDLE.exists()
    python = str(PADDLE) if has_paddle else sys.executable  # it has scikit-learn's digits, too
    make = [python, str(ROOT / "examples/models/make_data.py"), str(folder)]
    subprocess.run(make, check=True, capture_output=True, timeout=_MAKE_S)
    found = [Flavour("numpy", sys.executable, _options("digits_numpy", folder))]
    if has_paddle:
        found.append(Flavour("paddle", str(PADDLE), _options("digits", folder)))
    return found


def _options(model: str, folder: Path) -> dict[str, Any]:
    return {
        "model": str(ROOT / f"examples/models/{model}.py"),
        "data": str(folder / "digits-train.npz"),
        "batch_size": BATCH,
    }
