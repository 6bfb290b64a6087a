"""Growth of a synchronous job with a gigabyte of state: how long the other trainers pause.

Two trainers train; a third joins. Once they hand the state over in parts while they train, and
once at once, in the same run: the machine is the same for both.
"""

import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from bench.benchmark import Result, Setting
from e2e.measure.criteria import Criterion
from tests.sdk.sync.fleets import Fleet, Member

Json = dict[str, Any]
MEGABYTES = 1_000
QUICK_MEGABYTES = 100
MEMBERS = 2
_BEFORE, _WARM = 8, 2
"""Steps of all members that are there, before the newcomer comes; the first ones are warm-up."""
_STEPS = 100_000
_STEPS_MORE = 3
_MEMORY_SHARE = 0.25
_PAUSE_STEPS = 1.0
_LIMIT_S = 900.0


def run(setting: Setting) -> Result:
    """Measures both ways to hand the state over."""
    megabytes = MEGABYTES if len(setting.sizes) > 2 else QUICK_MEGABYTES  # noqa: PLR2004 - full
    raw = {}
    for name, in_parts in (("in_parts", True), ("at_once", False)):
        setting.report_progress(f"growth: {megabytes} MB of state, {name.replace('_', ' ')}")
        with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
            options = {"megabytes": megabytes, "in_parts": in_parts}
            raw[name] = measure(Path(folder), options)
    parts, at_once = raw["in_parts"], raw["at_once"]
    criteria = (
        Criterion("growth_pause_steps", parts["pause_s"] / parts["step_s"], "steps", _PAUSE_STEPS),
        Criterion("growth_pause_s", parts["pause_s"], "s"),
        Criterion("growth_pause_at_once_s", at_once["pause_s"], "s"),
        Criterion("growth_until_it_computes_s", parts["whole_s"], "s"),
        Criterion("growth_memory_mb", parts["memory_mb"], "MB", _MEMORY_SHARE * megabytes),
    )
    figures = {name: [value["pause_s"]] * len(setting.sizes) for name, value in raw.items()}
    return Result(criteria, {f"growth_{name}_pause_s": v for name, v in figures.items()}, raw)


def measure(
    folder: Path, options: Json, *, count: int = MEMBERS, program: str = "bench.growth_member"
) -> Json:
    """Lets a trainer join some others.

    Args:
        folder: For logs and the journal.
        options: Of the program.
        count: Of the others.
        program: The trainers' module.

    Returns:
        The median step before in seconds, by how much the longest step since exceeds it, how long
        it took until the newcomer computed, and by how many MB the others' peak memory grew.

    Raises:
        RuntimeError: The trainers did not come that far.
    """
    with Fleet(folder, {**options, "steps": _STEPS}, program=program) as fleet:
        members = [fleet.add() for _ in range(count)]
        _until(fleet, lambda: all(_count(member, count) > _BEFORE for member in members))
        for member in members:
            Path(f"/proc/{member.process.pid}/clear_refs").write_text("5")  # resets the peak
        peaks_mb = [member.figures()["memory_mb"] for member in members]
        newcomer = fleet.add()
        _until(fleet, lambda: _count(newcomer, count + 1) > _STEPS_MORE)
        last = newcomer.steps[-1]
        _until(fleet, lambda: members[0].steps[-1]["step"] >= last["step"])
        sums = {line["sum"] for m in (*members, newcomer) for line in m.steps if _is(line, last)}
        if len(sums) != 1:
            raise RuntimeError(f"the members' models differ: {sums}")
        grown_mb = [
            m.steps[-1]["peak_mb"] - peak for m, peak in zip(members, peaks_mb, strict=True)
        ]
        return {**_times(members, newcomer), "memory_mb": max(grown_mb)}


def _times(members: list[Member], newcomer: Member) -> Json:
    first_s = newcomer.steps[0]["at_s"]
    before, since = [], []
    settled = max(member.steps[0]["step"] for member in members) + _WARM
    for member in members:
        steps = [line for line in member.steps if line["step"] >= settled]
        for previous, line in pairwise(steps):
            seconds = line["at_s"] - previous["at_s"]
            if line["at_s"] < newcomer.arrived_s:
                before.append(seconds)
            elif previous["at_s"] < first_s:
                since.append(seconds)
    step_s = median(before)
    return {
        "step_s": step_s,
        "longest_s": max(since),
        "pause_s": max(since) - step_s,
        "steps_meanwhile": len(since) // len(members),
        "step_meanwhile_s": median(since),
        "whole_s": first_s - newcomer.arrived_s,
    }


def _count(member: Member, world: int) -> int:
    return sum(line["world"] == world for line in member.steps)


def _is(line: Json, other: Json) -> bool:
    return bool(line["step"] == other["step"])


def _until(fleet: Fleet, true: Any) -> None:
    def looks() -> bool:
        for member in fleet.members:
            member.look()
        return bool(true())

    if not fleet.until(looks, _LIMIT_S):
        raise RuntimeError(f"the trainers did not come that far in {_LIMIT_S:.0f} s")
