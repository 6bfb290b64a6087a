"""Learning rate schedules; the parameter servers have the same ones. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_COMMON = {"warmup": 0, "start": 0.0}
_OPTIONS: dict[str, dict[str, Any]] = {
    "constant": {},
    "step": {"every": None, "by": 0.1},
    "exponential": {"every": 1, "by": None},
    "cosine": {"versions": None, "lowest": 0.0},
}
"""Kind -> options with their defaults; an option whose default is None is required."""
_SHARES = ("start", "by", "lowest")


def rate_factor(schedule: Mapping[str, Any] | None, step: int) -> float:
    """Returns the factor by which a step multiplies the learning rate.

    Args:
        schedule: A valid schedule; None for a constant rate.
        step: Number of steps before this one.
    """
    if schedule is None:
        return 1.0
    options = {**_COMMON, **_OPTIONS[schedule["kind"]], **schedule}
    if step < options["warmup"]:
        return float(options["start"] + (1 - options["start"]) * step / options["warmup"])
    step -= options["warmup"]
    if options["kind"] == "step":
        return float(options["by"] ** (step // options["every"]))
    if options["kind"] == "exponential":
        return float(options["by"] ** (step / options["every"]))
    if options["kind"] == "cosine":
        wave = (1 + math.cos(math.pi * min(1.0, step / options["versions"]))) / 2
        return float(options["lowest"] + (1 - options["lowest"]) * wave)
    return 1.0


def schedule_problem(schedule: Any) -> str:
    """Returns what is wrong with a schedule; "" if it is valid."""
    if schedule is None:
        return ""
    kind = schedule.get("kind") if isinstance(schedule, Mapping) else None
    if not isinstance(schedule, Mapping) or kind not in _OPTIONS:
        return f"has schedule {str(schedule)!r:.60}: its kind must be one of {', '.join(_OPTIONS)}"
    known = {**_COMMON, **_OPTIONS[kind]}
    for name, value in {**known, **schedule}.items():
        if name == "kind":
            continue
        if name not in known:
            return f"has no setting schedule.{name}: {kind} has {', '.join(known)}"
        if value is None:
            return f"needs schedule.{name} for {kind}"
        problem = _share_problem(value) if name in _SHARES else _count_problem(name, value)
        if problem:
            return f"has schedule.{name} {value!r:.40}: {problem}"
    return ""


def _share_problem(value: Any) -> str:
    valid = isinstance(value, (int, float)) and 0 <= value <= 1
    return "" if valid else "it must be from 0 to 1"


def _count_problem(name: str, value: Any) -> str:
    least = 0 if name == "warmup" else 1
    valid = isinstance(value, int) and not isinstance(value, bool) and value >= least
    return "" if valid else f"it must be a whole number, at least {least}"
