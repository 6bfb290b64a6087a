"""Duration of an all-reduce: 2, 4 and 8 processes, 10 000 to 10 million floats.

If `make paddle` has installed PaddlePaddle, its gloo backend is measured in alternating turns of
the same run: the ratio is meaningful on a machine with other load, too.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

from edl.local.ports import free_ports

from bench.benchmark import Result, Setting
from bench.digits import PADDLE, ROOT
from e2e.measure.criteria import Criterion

WORLDS = (2, 4, 8)
SIZES = {"10k": 10_000, "100k": 100_000, "1M": 1_000_000, "10M": 10_000_000}
SHARES = (4, 2, 1, 0.1)
"""Sums of each size in a turn, per round of the setting."""
STATE_MEMBERS, STATE_FLOATS = 4, 250_000_000
OTHERS_MB = 64.0
"""What members that have the state may need while one gets it."""
_LEAST = 3
_TURN_ROUNDS = 20
"""Rounds of the setting per turn."""
_ANSWER_S = 300.0
_END_S = 20.0
_PROGRAM = "bench.exchange_member"

Figures = list[list[float]]
"""Milliseconds of every sum, for each size."""


def run(setting: Setting) -> Result:
    """Measures EDL's ring and gloo in alternating turns."""
    pythons = {"ring": sys.executable} | ({"gloo": str(PADDLE)} if PADDLE.exists() else {})
    turns = max(1, setting.rounds // _TURN_ROUNDS)
    counts = [max(_LEAST, round(min(setting.rounds, _TURN_ROUNDS) * share)) for share in SHARES]
    medians: dict[str, dict[str, float]] = {kind: {} for kind in pythons}
    for world in WORLDS:
        figures_by_kind: dict[str, list[Figures]] = {kind: [] for kind in pythons}
        for turn in range(turns):
            for kind, python in pythons.items():
                setting.report_progress(f"exchange: {kind} of {world}, turn {turn + 1} of {turns}")
                figures_by_kind[kind].append(
                    measure(kind, python, world, list(SIZES.values()), counts)
                )
        for kind, figures in figures_by_kind.items():
            for index, size in enumerate(SIZES):
                times = [time for turn in figures for time in turn[index]]
                medians[kind][f"{world}_x_{size}"] = median(times)
    setting.report_progress(f"exchange: {STATE_FLOATS * 4 / 1e9:g} GB to a newcomer")
    handed = measure_hand_over(STATE_MEMBERS, STATE_FLOATS, turns + 1)
    measured = result(setting, medians)
    others_mb = max(memory for _, (memory,) in handed[:-1])
    criteria = (
        *measured.criteria,
        Criterion("hand_over_1_GB_s", median(handed[0][0]) / 1000, "s"),
        Criterion("hand_over_memory_of_others_mb", others_mb, "MB", OTHERS_MB),
    )
    return replace(measured, criteria=criteria, raw=measured.raw | {"hand_over": handed})


def measure_hand_over(world: int, size: int, count: int) -> list[Figures]:
    """Measures how long the last member's state takes.

    Args:
        world: The number of members.
        size: The number of floats in the state.
        count: How often it is handed over.

    Returns:
        By rank: milliseconds of each time, and by how many MB the peak of memory grew.
    """
    numbers = [str(world), str(size), str(count)]
    return _run_members(
        [
            [sys.executable, "-m", _PROGRAM, "hand_over", str(rank), *numbers]
            for rank in range(world)
        ],
        lambda addresses: addresses,
    )


def measure(
    kind: str, python: str, world: int, sizes: Sequence[int], counts: Sequence[int]
) -> Figures:
    """Measures one ring or gloo group in separate processes.

    Args:
        kind: "ring" or "gloo".
        python: The interpreter to use.
        world: The number of members.
        sizes: The numbers of floats in a sum.
        counts: The number of sums of each size.

    Returns:
        Milliseconds of each sum, at the member of rank 0.

    Raises:
        RuntimeError: A member ended without a result.
    """
    arguments = [str(world), json.dumps(list(sizes)), json.dumps(list(counts))]
    return _run_members(
        [[python, "-m", _PROGRAM, kind, str(rank), *arguments] for rank in range(world)],
        lambda addresses: addresses if kind == "ring" else free_ports(1)[0],
    )[0]


def _run_members(commands: list[list[str]], reply: Callable[[Any], Any]) -> list[Figures]:
    with ExitStack() as stack:
        members = [stack.enter_context(_member(command)) for command in commands]
        answer = reply([_receive(member) for member in members])
        for member in members:
            _send(member, answer)
        figures: list[Figures] = [_receive(member) for member in members]
        for member in members:
            _send(member, "end")
    return figures


@contextmanager
def _member(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}  # one core each, as trainers have
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | quiet,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as member:
        late = threading.Timer(_ANSWER_S, member.kill)
        late.start()
        try:
            yield member
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.wait(_END_S)
        finally:
            late.cancel()
            member.kill()


def _send(member: "subprocess.Popen[str]", text: Any) -> None:
    assert member.stdin is not None  # noqa: S101 - made with a pipe
    member.stdin.write(json.dumps(text) + "\n")
    member.stdin.flush()


def _receive(member: "subprocess.Popen[str]") -> Any:
    assert member.stdout is not None  # noqa: S101 - made with a pipe
    line = member.stdout.readline()
    if not line:
        raise RuntimeError(f"a member ended without a result: {_PROGRAM}")
    return json.loads(line)


def result(setting: Setting, medians: dict[str, dict[str, float]]) -> Result:
    """Computes the figures, and the ratios if gloo was measured.

    Args:
        setting: The setting of the run.
        medians: Milliseconds by kind ("ring" and, if measured, "gloo") and case.
    """
    ours, theirs = medians["ring"], medians.get("gloo", {})
    criteria = [
        Criterion(f"all_reduce_{name}_over_gloo", ours[name] / theirs[name], "x") for name in theirs
    ]
    figures = {
        f"{kind}_{name}_ms": [time] * len(setting.sizes)
        for kind, times_ms in medians.items()
        for name, time in times_ms.items()
    }
    return Result(tuple(criteria), figures, {"median_ms": medians})
