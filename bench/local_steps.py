"""Semi-synchronous and synchronous training compared: accuracy and bytes, while trainers are killed."""

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from bench.benchmark import Result, Setting
from e2e.measure.criteria import Criterion
from tests.sdk.torch.digits_jobs import TORCH, digits

LOCAL_STEPS, KILLS = 50, 3
_POINTS, _SHARE = 0.01, 0.1
"""Bars: accuracy that may be lost, and share of the bytes."""


def run(setting: Setting) -> Result:
    """Trains the digits in torch by four trainers, together and apart.

    Raises:
        RuntimeError: torch is not installed.
    """
    if not (TORCH / "torch").exists():
        raise RuntimeError(f"no torch in {TORCH}: `make torch` installs it")
    raw: dict[str, Any] = {}
    os.environ["PYTHONPATH"] = str(TORCH)
    try:
        for name, train in (
            ("together", partial(digits, local_steps=0, kills=0, pause_s=0.0)),
            ("apart", partial(digits, local_steps=LOCAL_STEPS, kills=KILLS, pause_s=0.03)),
        ):
            setting.report_progress(f"local: the digits, {name}")
            with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
                accuracy, megabytes = train(Path(folder))
            raw[name] = {"accuracy": accuracy, "megabytes": megabytes}
    finally:
        del os.environ["PYTHONPATH"]
    together, apart = raw["together"], raw["apart"]
    criteria = (
        Criterion("local_lost_accuracy", together["accuracy"] - apart["accuracy"], "", _POINTS),
        Criterion("local_bytes_share", apart["megabytes"] / together["megabytes"], "", _SHARE),
    )
    return Result(criteria, {}, raw)
