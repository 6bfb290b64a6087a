"""`python -m bench.mutants`: measures how many faults the tests detect. See docs/decisions."""

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from rich.console import Console

from bench.mutants import report
from bench.mutants.rooms import rooms
from bench.mutants.run import MIN_PER_ROOM, RoomError, Run
from bench.mutants.verdicts import MIN_RATE
from e2e.measure.processes import commit
from runtime.command_line import Parser
from runtime.signals import INTERRUPTED

_ROOT = Path(__file__).parents[2]
_OUTPUT = _ROOT / "build" / "mutants"
_COUNT = 500
_SEEDS = 10_000
_TELL_S = 15.0
"""The interval of progress lines, if the output is not a terminal."""
_DESCRIPTION = """Applies small faults to a copy of the tree, one at a time (mutmut generates them),
and runs the tests of the room that contains the fault. Prints how many the tests detect, and a diff
of each undetected one; writes build/mutants/report.json. The user's tree is only read."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0; 1 if the rate is too low or a run failed; 2 for a usage error; 130 after an interrupt.
    """
    all_rooms = rooms(_ROOT)
    arguments = _parser(list(all_rooms)).parse_args(argv)
    console, complaints = Console(), Console(stderr=True)
    seed = secrets.randbelow(_SEEDS) if arguments.seed is None else arguments.seed
    console.print(f"{_again(arguments, seed)} tries the same on the same tree", highlight=False)
    chosen = {
        name: room for name, room in all_rooms.items() if name in (arguments.room or all_rooms)
    }
    begun_s = perf_counter()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that processes are cleaned up
    try:
        with console.status("staging") as status:
            report_progress = _progress_printer(console, status.update)
            run = Run(
                _ROOT, _OUTPUT / "rooms", chosen, report_progress, len(os.sched_getaffinity(0))
            )
            outcomes = run.outcomes(seed, arguments.count)
    except KeyboardInterrupt:
        console.print("interrupted: no report was written")
        return INTERRUPTED
    except (OSError, LookupError, RoomError, ValueError) as error:
        complaints.print(
            f"mutants: {error}", style="red", highlight=False, markup=False, soft_wrap=True
        )
        return 1
    for reason in run.failed.values():
        complaints.print(reason, style="red", highlight=False, markup=False, soft_wrap=True)
    facts = {"seed": seed, "count": arguments.count, "rooms_tried": list(chosen)}
    facts |= {"commit": commit(_ROOT), "seconds": round(perf_counter() - begun_s)}
    report.write(_OUTPUT / "report.json", outcomes, facts)
    console.print(report.survivors(outcomes), highlight=False, markup=False, soft_wrap=True)
    console.print(report.table(outcomes, seed))
    console.print(f"report {_OUTPUT / 'report.json'}, {facts['seconds']} s", soft_wrap=True)
    return 0 if report.total(outcomes).rate >= MIN_RATE and not run.failed else 1


def _parser(names: list[str]) -> Parser:
    parser = Parser(prog="python -m bench.mutants", description=_DESCRIPTION)
    parser.add_argument(
        "--seed", type=_number(0), help="seed of the sample of mutants, 0 or more (default: random)"
    )
    parser.add_argument(
        "--count",
        type=_number(1),
        default=_COUNT,
        help=f"mutants of all rooms together, at least {MIN_PER_ROOM} of each (default: {_COUNT})",
    )
    parser.add_argument(
        "--room",
        action="append",
        choices=names,
        metavar="ROOM",
        help=f"only mutants of this room; may be repeated; one of {', '.join(names)}",
    )
    return parser


def _number(least: int) -> Callable[[str], int]:
    """Returns a parser of whole numbers of at least `least`."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number, {least} or more: {text!r}")
        return int(text)

    return read


def _again(arguments: argparse.Namespace, seed: int) -> str:
    """The command that repeats this run."""
    count = f" COUNT={arguments.count}" if arguments.count != _COUNT else ""
    named = f' ROOM="{" ".join(arguments.room)}"' if arguments.room else ""
    return f"make mutants SEED={seed}{count}{named}"


def _progress_printer(console: Console, update: Callable[[str], None]) -> Callable[[str], None]:
    """Returns a function that shows progress: in place on a terminal, else in occasional lines."""
    shown_s = 0.0

    def report_progress(text: str) -> None:
        nonlocal shown_s
        if console.is_terminal:
            update(text)
        elif perf_counter() - shown_s > _TELL_S:
            shown_s = perf_counter()
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    return report_progress


if __name__ == "__main__":
    sys.exit(main())
