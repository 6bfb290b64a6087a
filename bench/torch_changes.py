"""`edl.torch`: from a change of members to the next step, and the cost of a step over plain DDP."""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from edl import clock

from bench.benchmark import Result, Setting
from e2e.measure.criteria import Criterion
from tests.sdk.sync.fleets import Fleet, Member

Json = dict[str, Any]
MEGABYTES = 10
_TORCH = Path(os.environ.get("EDL_TORCH_PATH") or Path(__file__).parents[1] / "build/torch")
_WARM, _PAIRS, _QUICK_PAIRS = 20, 300, 60
_LIMIT_S = 300.0
_SETTLED = 5
"""Steps of all members after a change."""
_KILL_S, _FREEZE_S, _LEAVE_S, _COST = 0.5, 1.5, 0.3, 0.02
"""Bars: seconds from a signal to a step of all others, and the share that a step may cost more."""


def run(setting: Setting) -> Result:
    """Measures changes of two and four members, and the cost of a step.

    Raises:
        RuntimeError: torch is not installed, or trainers did not come that far.
    """
    if not (_TORCH / "torch").exists():
        raise RuntimeError(f"no torch in {_TORCH}: `make torch` installs it")
    is_full = len(setting.sizes) > 2  # noqa: PLR2004 - of the full run
    raw: Json = {}
    for members in (2, 4) if is_full else (2,):
        setting.report_progress(f"torch: changes of {members} members")
        raw[f"changes_{members}"] = _measure(partial(changes, count=members))
    setting.report_progress("torch: a step beside plain DDP")
    raw["step"] = _measure(lambda folder: cost(folder, _PAIRS if is_full else _QUICK_PAIRS))
    worst = {name: max(v[name] for k, v in raw.items() if k != "step") for name in raw["changes_2"]}
    criteria = (
        Criterion("torch_kill_s", worst["kill_s"], "s", _KILL_S),
        Criterion("torch_freeze_s", worst["freeze_s"], "s", _FREEZE_S),
        Criterion("torch_leave_s", worst["leave_s"], "s", _LEAVE_S),
        Criterion("torch_growth_pause_s", worst["growth_s"], "s"),
        Criterion("torch_step_cost", raw["step"]["cost"], "", _COST),
    )
    return Result(criteria, {}, raw)


def changes(folder: Path, count: int) -> Json:
    """Kills, freezes and ends a member each, and lets one come after each.

    Args:
        folder: For logs and the journal.
        count: Members before each change.

    Returns:
        Seconds from each signal to the first step of all others, and the longest time between two
        steps of the others while one joins.
    """
    options = {"torch": str(_TORCH), "megabytes": MEGABYTES, "beside": "", "members": count}
    with Fleet(folder, options, program="bench.torch_member") as fleet:
        for _ in range(count):
            fleet.add()
        _until(fleet, lambda: _all_at(fleet.active(), count, 0.0, _WARM))
        kinds = {"kill_s": signal.SIGKILL, "freeze_s": signal.SIGSTOP, "leave_s": signal.SIGTERM}
        pauses = {name: _change(fleet, count, number) for name, number in kinds.items()}
    growth_s = max(growth_s for _, growth_s in pauses.values())
    return {**{name: lost_s for name, (lost_s, _) in pauses.items()}, "growth_s": growth_s}


def _change(fleet: Fleet, count: int, number: signal.Signals) -> tuple[float, float]:
    """Sends a signal to the youngest member, and lets another come; see `changes`."""
    *others, victim = fleet.ranked()
    since_s = clock.monotonic_s()
    victim.send(number)
    _until(fleet, lambda: _all_at(others, count - 1, since_s, _SETTLED))
    firsts = [member.first(since_s, count - 1) for member in others]
    lost_s = max(step["at_s"] for step in firsts if step) - since_s
    if number == signal.SIGSTOP:
        victim.process.kill()
    victim.process.wait(_LIMIT_S)
    fleet.add()
    _until(fleet, lambda: _all_at(fleet.active(), count, since_s, _SETTLED))
    gaps = [
        after["at_s"] - before["at_s"]
        for member in others
        for before, after in pairwise(member.steps)
        if before["at_s"] > since_s + lost_s and after["world"] == count > before["world"]
    ]
    return lost_s, max(gaps)


def cost(folder: Path, pairs: int) -> Json:
    """Compares neighbouring steps of two members.

    Args:
        folder: For logs and the journal.
        pairs: How many.

    Returns:
        Median milliseconds of a step of ours and of plain DDP, and the median share by which ours
        are longer.
    """
    beside = str(folder / "beside")
    options = {"torch": str(_TORCH), "megabytes": MEGABYTES, "beside": beside, "members": 2}
    with Fleet(folder, options, program="bench.torch_member") as fleet:
        members = [fleet.add(), fleet.add()]
        lines = [member.notes for member in members]
        _until(
            fleet, lambda: all(p.exists() and p.read_text().count("ours_s") > pairs for p in lines)
        )
        text = lines[0].read_text("utf-8").splitlines()[:-1]  # the last one may be half a line
        rows = [json.loads(line) for line in text if "ours_s" in line][_WARM:]
    return {
        "ours_ms": 1000 * median(row["ours_s"] for row in rows),
        "plain_ms": 1000 * median(row["plain_s"] for row in rows),
        "cost": median(row["ours_s"] / row["plain_s"] for row in rows) - 1,
    }


def _measure(act: Callable[[Path], Json]) -> Json:
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        return act(Path(folder))


def _all_at(active: Sequence[Member], count: int, since_s: float, steps: int) -> bool:
    """Whether so many members have made some steps together since a moment."""
    done = [
        sum(step["world"] == count and step["at_s"] > since_s for step in m.steps) for m in active
    ]
    return len(done) >= count and min(done) >= steps


def _until(fleet: Fleet, true: Callable[[], bool]) -> None:
    def looks() -> bool:
        for member in fleet.members:
            member.look()
        return true()

    if not fleet.until(looks, _LIMIT_S):
        raise RuntimeError(f"the trainers did not come that far in {_LIMIT_S:.0f} s")
