"""The command `edl`: `edl run -n 4 train.py` runs an elastic job on this machine."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from edl.errors import EdlError
from edl.local.run import Options, Run
from edl.local.schedule import parse

_BAD_USE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, builds and runs."""
    asked = _parser().parse_args(argv)
    logging.basicConfig(format="%(asctime)s edl %(message)s", datefmt="%H:%M:%S")
    live = sys.stdout.isatty()
    logging.getLogger("edl").setLevel(logging.ERROR if live else logging.INFO)
    try:
        return Run(_options(asked)).run()
    except EdlError as error:
        print(f"edl: {error}", file=sys.stderr)
        return _BAD_USE


def _options(asked: argparse.Namespace) -> Options:
    program = Path(asked.program)
    if not program.is_file():
        raise EdlError(f"{program} is no file: name the program that trains")
    if asked.trainers < 1:
        raise EdlError(f"-n is {asked.trainers}: at least one trainer is needed")
    return Options(
        program=[str(program), *asked.arguments],
        trainers=asked.trainers,
        job=asked.job or program.stem,
        schedule=parse(asked.schedule),
        folder=asked.dir,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="edl", description="Elastic training.")
    parser.add_argument("--version", action="version", version=f"edl {version('edl-sdk')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run an elastic job on this machine")
    run.add_argument("-n", "--trainers", type=int, default=2, help="to begin with (default 2)")
    run.add_argument("--job", help="its name; the program's by default")
    run.add_argument(
        "--schedule",
        default="",
        metavar="WHEN:WHAT,...",
        help="what happens when, such as `2s:+1, 40%%:kill, 60%%:kill master, 5s:-1`",
    )
    run.add_argument(
        "--dir", type=Path, help="keeps journal and logs; a journal there is continued"
    )
    run.add_argument("program", help="a Python program that trains with edl.batches")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    return parser


if __name__ == "__main__":
    sys.exit(main())
