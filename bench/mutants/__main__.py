"""`python -m bench.mutants`: measures how many faults the tests detect. See docs/decisions."""

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from bench.mutants import files, report
from bench.mutants.rooms import Room, rooms
from bench.mutants.run import MIN_PER_ROOM, RoomError, Run
from bench.mutants.verdicts import MIN_RATE
from e2e.measure.processes import commit
from e2e.signals import INTERRUPTED
from runtime.command_line import Parser

_ROOT = Path(__file__).parents[2]
_OUTPUT = _ROOT / "build" / "mutants"
_FOLDER = _OUTPUT / "rooms"
_CHOSEN = _OUTPUT / "chosen.json"
"""What the last run tries; absent until its rooms are staged and their samples chosen."""
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
    parser = _parser(list(all_rooms))
    arguments = parser.parse_args(argv)
    if arguments.resume and (arguments.seed, arguments.count, arguments.room) != (None, None, None):
        parser.error(
            "--resume tries the sample of the run before: give no --seed, --count or --room"
        )
    console, complaints = Console(), Console(stderr=True)
    begun_s = perf_counter()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that processes are cleaned up
    try:
        facts = _interrupted_run() if arguments.resume else _new_run(arguments, all_rooms)
        console.print(f"{_again(facts)} tries the same on the same tree", highlight=False)
        chosen = {name: all_rooms[name] for name in all_rooms if name in facts["rooms_tried"]}
        with console.status("staging") as status:
            report_progress = _progress_printer(console, status.update)
            with Run(_ROOT, _FOLDER, chosen, report_progress, arguments.workers) as run:
                if not arguments.resume:
                    _CHOSEN.unlink(missing_ok=True)
                    run.choose(facts["seed"], facts["count"])
                    files.write(_CHOSEN, facts)
                outcomes = run.outcomes()
    except KeyboardInterrupt:
        go_on = "; `make mutants RESUME=1` goes on with it" if _CHOSEN.exists() else ""
        console.print(f"interrupted: no report was written{go_on}")
        return INTERRUPTED
    except (OSError, LookupError, RoomError, ValueError) as error:
        complaints.print(
            f"mutants: {error}", style="red", highlight=False, markup=False, soft_wrap=True
        )
        return 1
    for reason in run.failed.values():
        complaints.print(reason, style="red", highlight=False, markup=False, soft_wrap=True)
    facts |= {"seconds": round(perf_counter() - begun_s)}
    report.write(_OUTPUT / "report.json", outcomes, facts)
    console.print(report.survivors(outcomes), highlight=False, markup=False, soft_wrap=True)
    console.print(report.table(outcomes, facts["seed"]))
    console.print(f"report {_OUTPUT / 'report.json'}, {facts['seconds']} s", soft_wrap=True)
    return 0 if report.total(outcomes).rate >= MIN_RATE and not run.failed else 1


def _new_run(arguments: argparse.Namespace, all_rooms: Mapping[str, Room]) -> dict[str, Any]:
    """What a run tries, and on which commit."""
    default = [name for name, room in all_rooms.items() if room.tried_by_default]
    return {
        "seed": secrets.randbelow(_SEEDS) if arguments.seed is None else arguments.seed,
        "count": arguments.count or _COUNT,
        "rooms_tried": arguments.room or default,
        "commit": commit(_ROOT),
    }


def _interrupted_run() -> dict[str, Any]:
    """What the last run tries: its staged trees have the results so far.

    Raises:
        LookupError: There is none, or it ended before it had chosen mutants.
    """
    try:
        return dict(files.read(_CHOSEN))
    except FileNotFoundError:
        raise LookupError("no run to go on with: start one without --resume") from None


def _parser(names: list[str]) -> Parser:
    parser = Parser(prog="python -m bench.mutants", description=_DESCRIPTION)
    parser.add_argument(
        "--seed", type=_number(0), help="seed of the sample of mutants, 0 or more (default: random)"
    )
    parser.add_argument(
        "--count",
        type=_number(1),
        help=f"mutants of all rooms together, at least {MIN_PER_ROOM} of each (default: {_COUNT})",
    )
    parser.add_argument(
        "--room",
        action="append",
        choices=names,
        metavar="ROOM",
        help="only mutants of this room; may be repeated (default: all but admin and cli); one of "
        + ", ".join(names),
    )
    parser.add_argument(
        "-n",
        "--workers",
        type=_number(1),
        default=len(os.sched_getaffinity(0)),
        help="processes that test mutants at once (default: one for each core)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run before that was interrupted, on its copy of the tree",
    )
    return parser


def _number(least: int) -> Callable[[str], int]:
    """Returns a parser of whole numbers of at least `least`."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number, {least} or more: {text!r}")
        return int(text)

    return read


def _again(facts: Mapping[str, Any]) -> str:
    """The command that repeats this run."""
    count = f" COUNT={facts['count']}" if facts["count"] != _COUNT else ""
    default = [name for name, room in rooms(_ROOT).items() if room.tried_by_default]
    named = f' ROOM="{" ".join(facts["rooms_tried"])}"' if facts["rooms_tried"] != default else ""
    return f"make mutants SEED={facts['seed']}{count}{named}"


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
