"""How long an all-reduce takes: 2, 4 and 8 processes, 10 000 to 10 million floats.

Beside PaddlePaddle's own (gloo), in turns within one run, where `make paddle` has installed it:
the ratio means something on a machine that does other things too.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.benchmark import Result, Setting
from e2e.measure.bars import Bar

WORLDS = (2, 4, 8)
SIZES = {"10k": 10_000, "100k": 100_000, "1M": 1_000_000, "10M": 10_000_000}
SHARES = (4, 2, 1, 0.1)
"""Sums of each size in a turn, for each of the setting's rounds."""
_LEAST = 3
_TURN_ROUNDS = 20
"""Rounds of the setting that make one turn."""
_ANSWER_S = 300.0
_END_S = 20.0
_PROGRAM = "bench.exchange_member"
_ROOT = Path(__file__).parents[1]
_PADDLE = _ROOT / "build" / "paddle" / "bin" / "python"

Figures = list[list[float]]
"""Milliseconds of every sum, for each size."""


def run(setting: Setting) -> Result:
    """Sums in turns: ours, gloo's, ours, ..."""
    pythons = {"ring": sys.executable} | ({"gloo": str(_PADDLE)} if _PADDLE.exists() else {})
    turns = max(1, setting.rounds // _TURN_ROUNDS)
    counts = [max(_LEAST, round(min(setting.rounds, _TURN_ROUNDS) * share)) for share in SHARES]
    medians: dict[str, dict[str, float]] = {kind: {} for kind in pythons}
    for world in WORLDS:
        taken: dict[str, list[Figures]] = {kind: [] for kind in pythons}
        for turn in range(turns):
            for kind, python in pythons.items():
                setting.tell(f"exchange: {kind} of {world}, turn {turn + 1} of {turns}")
                taken[kind].append(measure(kind, python, world, list(SIZES.values()), counts))
        for kind, figures in taken.items():
            for index, size in enumerate(SIZES):
                times = [time for turn in figures for time in turn[index]]
                medians[kind][f"{world}_x_{size}"] = median(times)
    return result(setting, medians)


def measure(
    kind: str, python: str, world: int, sizes: Sequence[int], counts: Sequence[int]
) -> Figures:
    """One ring or group, in processes of its own.

    Args:
        kind: "ring" or "gloo".
        python: Interpreter that has what that needs.
        world: How many members.
        sizes: Floats in a sum.
        counts: How many sums of each size.

    Returns:
        Milliseconds that the member of rank 0 needed.

    Raises:
        RuntimeError: A member said nothing sensible.
    """
    what = [str(world), json.dumps(list(sizes)), json.dumps(list(counts))]
    with ExitStack() as stack:
        members = [
            stack.enter_context(_member([python, "-m", _PROGRAM, kind, str(rank), *what]))
            for rank in range(world)
        ]
        told = [_hear(member) for member in members]
        where = told if kind == "ring" else _free_port()
        for member in members:
            _tell(member, where)
        figures: list[Figures] = [_hear(member) for member in members]
        for member in members:
            _tell(member, "end")
    return figures[0]


@contextmanager
def _member(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}  # one core each, as trainers have
    with subprocess.Popen(
        command,
        cwd=_ROOT,
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


def _tell(member: "subprocess.Popen[str]", text: Any) -> None:
    assert member.stdin is not None  # noqa: S101 - made with a pipe
    member.stdin.write(json.dumps(text) + "\n")
    member.stdin.flush()


def _hear(member: "subprocess.Popen[str]") -> Any:
    assert member.stdout is not None  # noqa: S101 - made with a pipe
    line = member.stdout.readline()
    if not line:
        raise RuntimeError(f"a member ended before its time: {_PROGRAM}")
    return json.loads(line)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def result(setting: Setting, medians: dict[str, dict[str, float]]) -> Result:
    """Figures of all, and ratios where there is something beside.

    Args:
        setting: Says how many values a figure has.
        medians: "ring", and "gloo" where it was measured -> case -> milliseconds.
    """
    ours, theirs = medians["ring"], medians.get("gloo", {})
    bars = [Bar(f"all_reduce_{name}_over_gloo", ours[name] / theirs[name], "x") for name in theirs]
    figures = {
        f"{kind}_{name}_ms": [time] * len(setting.sizes)
        for kind, found in medians.items()
        for name, time in found.items()
    }
    return Result(tuple(bars), figures, {"median_ms": medians})
