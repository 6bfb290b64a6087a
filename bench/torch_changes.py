"""`edl.torch` and torchft compared: time from a membership change to the next step, and cost of a step."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
_BUILD = Path(__file__).parents[1] / "build"
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or _BUILD / "torch")
_TORCHFT = Path(os.environ.get("EDL_TORCHFT_PATH") or _BUILD / "torchft")
_WARM, _PAIRS, _QUICK_PAIRS = 20, 300, 60
_LIMIT_S = 300.0
_SETTLED = 5
"""Steps of all members after a change."""
_KILL_S, _FREEZE_S, _LEAVE_S, _COST = 0.5, 1.5, 0.3, 0.02
"""Bars: seconds from a signal to a step of all others, and the share that a step may cost more."""
_SIGNALS = {"kill_s": signal.SIGKILL, "freeze_s": signal.SIGSTOP, "leave_s": signal.SIGTERM}
_FULL = ((2, 10), (4, 10), (8, 10), (2, 100), (4, 100), (8, 100))
_QUICK = ((2, 10),)
"""Members, and megabytes of the model."""
_LIGHTHOUSE = """
import sys
sys.path[:0] = sys.argv[1:]
from torchft.coordination import LighthouseServer
server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=100)
print(server.address(), flush=True)
sys.stdin.read()
"""


def run(setting: Setting) -> Result:
    """Measures changes of two, four and eight members, of models of 10 and 100 MB, and the cost of a step.

    Each change is measured with torchft as well, in the same run, where `make torchft` has
    installed it; changes that its trainers do not come to are reported and left out.

    Raises:
        RuntimeError: torch is not installed, or trainers of EDL did not come that far.
    """
    require_torch()
    is_full = len(setting.sizes) > 2  # noqa: PLR2004 - of the full run
    has_torchft = (_TORCHFT / "torchft").exists()
    if not has_torchft:
        setting.report_progress(f"torch: no torchft in {_TORCHFT}: `make torchft` installs it")
    raw: Json = {"loads": {}}
    for count, megabytes in _FULL if is_full else _QUICK:
        for name in ("edl", "torchft") if has_torchft else ("edl",):
            key = f"{name}_{count}_{megabytes}_mb"
            setting.report_progress(f"torch: {name}, changes of {count} members, {megabytes} MB")
            measure = changes if name == "edl" else torchft_changes
            try:
                raw[key] = _measure(partial(measure, count=count, megabytes=megabytes))
            except RuntimeError as error:
                if name == "edl":
                    raise
                setting.report_progress(f"torch: {key}: {error}")
                continue
            raw["loads"][key] = os.getloadavg()[0]
            figures = ", ".join(f"{kind} {value:.2f}" for kind, value in raw[key].items())
            setting.report_progress(f"torch: {key}: {figures} (load {raw['loads'][key]:.1f})")
    setting.report_progress("torch: a step beside plain DDP")
    raw["step"] = _measure(lambda folder: cost(folder, _PAIRS if is_full else _QUICK_PAIRS))
    raw["loads"]["step"] = os.getloadavg()[0]
    return Result(tuple(_criteria(raw)), {}, raw)


def require_torch() -> None:
    """Raises a RuntimeError where torch is not installed."""
    if not (TORCH / "torch").exists():
        raise RuntimeError(f"no torch in {TORCH}: `make torch` installs it")


def _criteria(raw: Json) -> Iterator[Criterion]:
    bars: dict[str, float | None] = {"kill_s": _KILL_S, "freeze_s": _FREEZE_S, "leave_s": _LEAVE_S}
    bars |= {"growth_s": None, "step_s": None}
    for name, prefix in (("edl", "torch"), ("torchft", "torchft")):
        rows = [figures for key, figures in raw.items() if key.startswith(f"{name}_")]
        for kind, bar in bars.items() if rows else ():
            worst = max(figures[kind] for figures in rows)
            label = "growth_pause_s" if kind == "growth_s" else kind
            limits = () if bar is None or name != "edl" else (bar,)
            yield Criterion(f"{prefix}_{label}", worst, "s", *limits)
    yield Criterion("torch_step_cost", raw["step"]["cost"], "", _COST)


def changes(folder: Path, count: int, megabytes: int) -> Json:
    """Kills, freezes and ends a member each, and lets one come after each.

    Args:
        folder: For logs and the journal.
        count: Members before each change.
        megabytes: Of the model.

    Returns:
        Seconds from each signal to the first step of all others, the longest time between two
        steps of the others while one joins, and the median step of those that are left: no change can
        take less than that.
    """
    options = {"torch": str(TORCH), "megabytes": megabytes, "beside": "", "members": count}
    return _all_changes(folder, options, "bench.torch_member")


def torchft_changes(folder: Path, count: int, megabytes: int) -> Json:
    """As `changes`, with torchft."""
    with _lighthouse() as address:
        paths = {"torch": str(TORCH), "torchft": str(_TORCHFT), "lighthouse": address}
        options = {**paths, "megabytes": megabytes, "members": count}
        return _all_changes(folder, options, "bench.torchft_member")


@contextmanager
def _lighthouse() -> Iterator[str]:
    """Runs torchft's server; yields its address."""
    command = [sys.executable, "-W", "ignore", "-c", _LIGHTHOUSE, str(TORCH), str(_TORCHFT)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        address = next(iter(process.stdout or ()), "").strip()
        if not address:
            raise RuntimeError("torchft's lighthouse did not start")
        try:
            yield address
        finally:
            process.kill()


def _all_changes(folder: Path, options: Json, program: str) -> Json:
    count = int(options["members"])
    with Fleet(folder, options, program=program) as fleet:
        for _ in range(count):
            fleet.add()
        _until(fleet, lambda: _all_at(fleet.active(), count, 0.0, _WARM))
        pauses = {name: _change(fleet, count, number) for name, number in _SIGNALS.items()}
    figures: Json = {name: lost_s for name, (lost_s, *_) in pauses.items()}
    figures["growth_s"] = max(growth_s for _, growth_s, _ in pauses.values())
    figures["step_s"] = median(gap for *_, gaps in pauses.values() for gap in gaps)
    return figures


def _change(
    fleet: Fleet, count: int, number: signal.Signals
) -> tuple[float, float, Sequence[float]]:
    """Sends a signal to the youngest member, and lets another come; see `changes`.

    Returns:
        Seconds of the loss, of the longest pause in growth, and of each step between the two.
    """
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
        (after["world"], after["at_s"] - before["at_s"])
        for member in others
        for before, after in pairwise(member.steps)
        if before["at_s"] >= since_s + lost_s and before["world"] < count
    ]
    growth_s = max(gap for world, gap in gaps if world == count)
    return lost_s, growth_s, [gap for world, gap in gaps if world < count]


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
    options = {"torch": str(TORCH), "megabytes": 10, "beside": beside, "members": 2}
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
    """Returns whether a number of members has made some steps together since a moment."""
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
