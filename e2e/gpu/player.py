"""Runs cells one after the other, each in a separate process with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from e2e.gpu.catalogue import Cell
from e2e.gpu.cell import FIGURES, Figure
from e2e.gpu.child import RESULT

LOG = "log.txt"
_MARK = "EDL_GPU_CELL"
_SHORTEST_S = 10.0
"""A cell does not begin with less time than this."""
_STACKS_S = 2.0
"""Time to write stacks after SIGABRT, and to end after SIGKILL."""
_SHOWN_CHARACTERS = 6_000


@dataclass(frozen=True)
class Outcome:
    """The result of a cell."""

    cell: str
    state: str
    """ "passed", "failed", "hung" or "left out"."""
    seconds: float = 0.0
    problem: str = ""
    """The problem of the cell; its first line is for the table."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    log: str = ""
    """The end of its output, with the stacks of processes that hung."""

    def as_json(self) -> dict[str, object]:
        """Returns it for the report."""
        return asdict(self)


def play_all(
    cells: Sequence[Cell],
    device: str,
    folder: Path,
    environ: Mapping[str, str],
    *,
    seconds: float,
    on_end: Callable[[Outcome], None],
) -> list[Outcome]:
    """Runs cells; leaves out cells that the device cannot run, and cells for which no time is left.

    Args:
        cells: In this order.
        device: As in `Run`.
        folder: Gets a folder for each cell, with its log.
        environ: Of their processes.
        seconds: For all of them together.
        on_end: Called after each.
    """
    outcomes = []
    until_s = time.monotonic() + seconds
    for cell in cells:
        left_s = until_s - time.monotonic()
        if cell.needs_cuda and device != "cuda":
            outcome = Outcome(cell.name, "left out", problem="it needs an NVIDIA GPU")
        elif left_s < _SHORTEST_S:
            outcome = Outcome(cell.name, "left out", problem=f"no time left of {seconds:.0f} s")
        else:
            place = folder / cell.name
            place.mkdir(parents=True)
            outcome = play(cell, device, place, environ, min(cell.limit_s, left_s))
        outcomes.append(outcome)
        on_end(outcome)
    return outcomes


def play(
    cell: Cell, device: str, folder: Path, environ: Mapping[str, str], limit_s: float
) -> Outcome:
    """Plays a cell; nothing that it has started outlives the call."""
    command = [sys.executable, "-m", "e2e.gpu.child", cell.function, device, str(folder)]
    begun_s, mark = time.monotonic(), secrets.token_hex(8)
    environ = {**environ, _MARK: mark}
    with (folder / LOG).open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environ)
        try:
            process.wait(limit_s)
            is_over = True
        except subprocess.TimeoutExpired:
            is_over = False
        finally:
            remains = end_all(process, mark)
    seconds = time.monotonic() - begun_s
    figures = _json(folder / FIGURES)
    text = (folder / LOG).read_text(encoding="utf-8", errors="replace")[-_SHOWN_CHARACTERS:]
    if is_over:
        state, problem = _result(folder, process.returncode, remains)
    elif limit_s < cell.limit_s:
        state, problem = "left out", f"ended after {limit_s:.0f} of its {cell.limit_s:.0f} s"
    else:
        state, problem = "hung", f"hung: ended after {limit_s:.0f} s"
    return Outcome(cell.name, state, seconds, problem, figures, text if problem else "")


def _result(folder: Path, code: int, remains: int) -> tuple[str, str]:
    """Returns the state and the problem of a cell that has ended by itself."""
    result = _json(folder / RESULT)
    if not result:
        end = signal.Signals(-code).name if code < 0 else f"code {code}"
        return "failed", f"crashed with {end}"
    problem = str(result["problem"])
    if result["left_out"]:
        return "left out", problem
    if not problem and remains:
        problem = f"left {remains} process{'' if remains == 1 else 'es'} behind"
    return ("failed" if problem else "passed"), problem


def _json(path: Path) -> dict[str, Figure]:
    if not path.exists():
        return {}
    content: dict[str, Figure] = json.loads(path.read_text(encoding="utf-8"))
    return content


def end_all(process: subprocess.Popen[bytes], mark: str) -> int:
    """Ends a process and all that it has started, by pid; returns how many it had left behind.

    SIGABRT has Python write the stacks of all threads. What was started gets it first, as the process may
    read its output.
    """
    others = [pid for pid in marked(mark) if pid != process.pid]
    _send(signal.SIGABRT, others)
    if process.poll() is None:
        _await_end(mark, others)
        _send(signal.SIGABRT, [process.pid])
        try:
            process.wait(_STACKS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    _await_end(mark, others)
    _send(signal.SIGKILL, marked(mark))
    _await_end(mark, marked(mark))
    return len(others)


def marked(mark: str) -> list[int]:
    """Returns the processes that have a cell's mark in their environment; those it has started inherit it."""
    wanted, found = f"{_MARK}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has ended, or is another user's
    return found


def _await_end(mark: str, pids: Iterable[int]) -> None:
    until_s = time.monotonic() + _STACKS_S
    while time.monotonic() < until_s and set(pids) & set(marked(mark)):
        time.sleep(0.05)


def _send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
