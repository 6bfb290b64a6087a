"""`edl run -n 4 train.py`: runs any program as an elastic job on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from edl.commands import local_run
from edl.errors import SettingError
from edl.local.run import Options, Run
from edl.local.schedule import parse

NAME = "run"
HELP = "run a program that uses edl.batches as an elastic job on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `edl run`."""
    local_run.add_arguments(parser)
    parser.add_argument("program", help="a Python program that trains with edl.batches")
    arguments = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="arguments of the program"
    )
    arguments.required = False  # so that the error for a missing program names only the program


def run(args: argparse.Namespace) -> int:
    """Runs the job; returns the exit code.

    Raises:
        EdlError: A flag or file is invalid.
    """
    program = Path(args.program)
    if not program.is_file():
        raise SettingError(f"{program} is not a file: name the training program")
    local_run.check_folder("--dir", args.dir)
    options = Options(
        program=[str(program), *args.arguments],
        trainers=local_run.trainer_count(args),
        job=args.job or program.stem,
        schedule=parse(args.schedule),
        folder=args.dir,
        python=local_run.interpreter(args),
    )
    return Run(options).run()
