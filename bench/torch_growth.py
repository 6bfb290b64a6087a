"""Growth of a job in torch with a gigabyte of state: how long the other trainers pause."""

import os
import tempfile
from pathlib import Path

from bench import growth
from bench.benchmark import Result, Setting
from bench.torch_changes import TORCH, require_torch
from e2e.measure.criteria import Criterion

_FULL, _QUICK = (2, 4, 8), (2,)
"""Members before one more comes."""
_PAUSE_STEPS = 1.0


def run(setting: Setting) -> Result:
    """Lets a trainer join two, four and eight others (DDP, Adam), which hand the state over in parts.

    Raises:
        RuntimeError: torch is not installed, or trainers did not come that far.
    """
    require_torch()
    is_full = len(setting.sizes) > 2  # noqa: PLR2004 - of the full run
    megabytes = growth.MEGABYTES if is_full else growth.QUICK_MEGABYTES
    options = {"torch": str(TORCH), "megabytes": megabytes}
    raw: growth.Json = {}
    for count in _FULL if is_full else _QUICK:
        setting.report_progress(f"torch-growth: {count} members, {megabytes} MB of state")
        with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
            figures = growth.measure(
                Path(folder), options, count=count, program="bench.torch_growth_member"
            )
        raw[f"{count}_members"] = {**figures, "load": os.getloadavg()[0]}
        shown = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
        setting.report_progress(f"torch-growth: {count} members: {shown}")
    rows = list(raw.values())
    pause_steps = max(row["pause_s"] / row["step_s"] for row in rows)
    criteria = (
        Criterion("torch_growth_pause_steps", pause_steps, "steps", _PAUSE_STEPS),
        Criterion("torch_growth_1gb_pause_s", max(row["pause_s"] for row in rows), "s"),
        Criterion("torch_growth_until_it_computes_s", max(row["whole_s"] for row in rows), "s"),
        Criterion("torch_growth_memory_mb", max(row["memory_mb"] for row in rows), "MB"),
    )
    return Result(criteria, {}, raw)
