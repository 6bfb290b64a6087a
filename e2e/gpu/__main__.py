"""Runs the cells that try EDL on a GPU: `make gpu`, or `python -m e2e.gpu`.

Needs a Python with torch for CUDA. Other packages that it lacks come from build/gpu-wheels.
"""

from __future__ import annotations

import argparse
import fcntl
import platform
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from e2e.gpu import report, wheels
from e2e.gpu.card import CardError, environment, find_card, has_standin, missing_modules
from e2e.gpu.catalogue import CELLS, Cell, UnknownCellError, choose
from e2e.gpu.player import Outcome, play_all
from runtime.command_line import Parser

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build/gpu"
REPORT, PLACE = OUT / "report.json", OUT / "cells"
SECONDS = 360.0
_INTERRUPTED = 130


def main(words: Sequence[str]) -> int:
    """Runs cells; returns 0 if none of them fails or hangs, or if there is no card."""
    end_by_signals()
    args = _arguments(words)
    try:
        return _run(choose(args.cells.split(",")), args.device, args.seconds)
    except (CardError, UnknownCellError, wheels.WheelError) as error:
        problem = str(error)
    except OSError as error:
        problem = f"{OUT.relative_to(ROOT)} cannot be used: {error}"
    except KeyboardInterrupt:
        print(f"make gpu: interrupted; {REPORT.relative_to(ROOT)} has the cells that have ended")
        return _INTERRUPTED
    print(f"make gpu: {problem}", file=sys.stderr)
    return 1


def end_by_signals() -> None:
    """Makes SIGTERM and SIGHUP interrupt as Ctrl-C does, so that cells end with this process."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def _run(cells: Sequence[Cell], device: str, seconds: float) -> int:
    site = OUT / f"site-{sys.implementation.cache_tag}"
    environ = environment(ROOT, site)
    card = None if device else find_card(environ)
    if card is None and not device:
        names = ", ".join(cell.name for cell in cells)
        print(f"no NVIDIA GPU on this machine; with one, make gpu would run {names}")
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    with (OUT / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CardError("another make gpu runs in this tree: wait for its end") from None
        if missing_modules(environ):
            wheels.install(site)
            wheels.check_complete(missing_modules(environ))
        if device == "standin" and not has_standin(environ):
            raise CardError("no stand-in: make torch builds it; add build/standin to PYTHONPATH")
        about: dict[str, object] = {"device": device} if card is None else asdict(card)
        return _run_cells(cells, device or "cuda", environ, about, seconds)


def _run_cells(
    cells: Sequence[Cell],
    device: str,
    environ: dict[str, str],
    about: dict[str, object],
    seconds: float,
) -> int:
    shutil.rmtree(PLACE, ignore_errors=True)
    print("  ".join(f"{name} {report.text(value)}" for name, value in about.items()), flush=True)
    width, longest = shutil.get_terminal_size().columns, max(len(cell.name) for cell in CELLS)
    commit = report.commit_of(ROOT, wheels.FOLDER / wheels.COMMIT)
    begun_s, ended = time.monotonic(), []

    def note(outcome: Outcome) -> None:
        ended.append(outcome)
        print(report.row(outcome, longest, width), flush=True)
        took_s = round(time.monotonic() - begun_s, 1)
        whole = {**about, "python": platform.python_version(), "seconds": took_s, "commit": commit}
        report.write(REPORT, whole, ended)

    play_all(cells, device, PLACE, environ, seconds=seconds, on_end=note)
    broken = [outcome for outcome in ended if outcome.state in ("failed", "hung")]
    for outcome in broken:
        print(f"\n{outcome.cell} {outcome.state}: {outcome.problem}")
    print(f"\nfigures: {REPORT.relative_to(ROOT)}, logs: {PLACE.relative_to(ROOT)}")
    return int(bool(broken))


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m e2e.gpu", description="Tries EDL on a GPU.")
    listed = "; ".join(f"{cell.name} ({cell.about})" for cell in CELLS)
    parser.add_argument("--cells", default="", help=f"some of: {listed}. All by default")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS,
        help="time limit for all cells together (default: %(default).0f)",
    )  # fmt: skip
    parser.add_argument(
        "--device", default="", choices=("cpu", "standin"),
        help="run on this device instead, to test the cells; those that need a GPU are left out",
    )  # fmt: skip
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
