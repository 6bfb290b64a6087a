"""The models of the benchmarks of synchronous training: digits, with both frameworks."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PADDLE = ROOT / "build/paddle/bin/python"
"""Created by `make paddle`."""
BATCH = 32
STEPS_AN_EPOCH = 45
_MAKE_S = 120.0


@dataclass(frozen=True, slots=True)
class Flavour:
    """A model with the interpreter of its framework."""

    name: str
    python: str
    options: dict[str, Any]
    """Options of `tests.sdk.sync.program`."""


def flavours(folder: Path) -> list[Flavour]:
    """Returns numpy and, if installed, PaddlePaddle; writes their data to a folder."""
    has_paddle = PADDLE.exists()
    python = str(PADDLE) if has_paddle else sys.executable  # both have scikit-learn's digits
    make = [python, str(ROOT / "examples/models/make_data.py"), str(folder)]
    subprocess.run(make, check=True, capture_output=True, timeout=_MAKE_S)
    installed = [Flavour("numpy", sys.executable, _options("digits_numpy", folder))]
    if has_paddle:
        installed.append(Flavour("paddle", str(PADDLE), _options("digits", folder)))
    return installed


def _options(model: str, folder: Path) -> dict[str, Any]:
    return {
        "model": str(ROOT / f"examples/models/{model}.py"),
        "data": str(folder / "digits-train.npz"),
        "batch_size": BATCH,
    }
