"""Plays the cells that try EDL on a GPU: `make gpu`, or `python -m e2e.gpu`.

Needs no other package than a torch with CUDA: those of the master come from build/gpu-wheels.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from e2e.gpu import report, wheels
from e2e.gpu.card import CardError, environment, find_card, missing_modules
from e2e.gpu.catalogue import CELLS, Cell, UnknownCellError, choose
from e2e.gpu.player import Outcome, play_all

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build/gpu"
SITE = OUT / "site"
"""Packages that this Python lacks."""
SECONDS = 360.0


def main(words: Sequence[str]) -> int:
    """Plays cells; returns 0 if all that were played have passed, or if there is no card."""
    args = _arguments(words)
    try:
        cells = choose([name for name in args.cells.split(",") if name])
        environ = environment(ROOT, SITE)
        card = None if args.device else find_card(environ)
        if card is None and not args.device:
            names = ", ".join(cell.name for cell in cells)
            print(f"no NVIDIA GPU on this machine; with one, make gpu plays {names}")
            return 0
        if missing_modules(environ):
            wheels.install(SITE)
        wheels.check_complete(missing_modules(environ))
    except (CardError, UnknownCellError, wheels.WheelError) as error:
        print(f"make gpu: {error}", file=sys.stderr)
        return 1
    about: dict[str, object] = {"device": args.device} if card is None else asdict(card)
    return _play(cells, args.device or "cuda", environ, about, args.seconds)


def _play(
    cells: Sequence[Cell],
    device: str,
    environ: dict[str, str],
    about: dict[str, object],
    seconds: float,
) -> int:
    place, begun_s = OUT / "cells", time.monotonic()
    shutil.rmtree(place, ignore_errors=True)
    title = "  ".join(f"{name} {report.text(value)}" for name, value in about.items())  # type: ignore[arg-type]
    print(title, flush=True)
    width = shutil.get_terminal_size().columns
    longest = max(len(cell.name) for cell in CELLS)

    def show(outcome: Outcome) -> None:
        print(report.row(outcome, longest, width), flush=True)

    outcomes = play_all(cells, device, place, environ, seconds=seconds, on_end=show)
    about |= {"python": platform.python_version(), "seconds": round(time.monotonic() - begun_s, 1)}
    report.write(
        OUT / "report.json", about, outcomes, report.commit_of(ROOT, wheels.FOLDER / wheels.COMMIT)
    )
    print(
        f"every figure is in {(OUT / 'report.json').relative_to(ROOT)}, logs are in {place.relative_to(ROOT)}"
    )
    return int(any(outcome.state in ("failed", "hung") for outcome in outcomes))


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.gpu", description="Tries EDL on a GPU.")
    listed = "; ".join(f"{cell.name} ({cell.about})" for cell in CELLS)
    parser.add_argument("--cells", default="", help=f"some of: {listed}. All by default")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all cells together")
    parser.add_argument(
        "--device", default="", choices=("cpu", "standin"),
        help="play on this one instead of a GPU: it tries the cells themselves",
    )  # fmt: skip
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
