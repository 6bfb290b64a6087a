"""`edl run -n 4 train.py`: an elastic job of any program on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from edl.commands import here
from edl.errors import SettingError
from edl.local.run import Options, Run
from edl.local.schedule import parse

NAME = "run"
HELP = "run a program that uses edl.batches, elastic, on this machine"


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    here.describe(parser)
    parser.add_argument("program", help="a Python program that trains with edl.batches")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")


def act(asked: argparse.Namespace) -> int:
    """Runs it.

    Raises:
        EdlError: Flags or files that cannot be used.
    """
    program = Path(asked.program)
    if not program.is_file():
        raise SettingError(f"{program} is no file: name the program that trains")
    options = Options(
        program=[str(program), *asked.arguments],
        trainers=here.trainers(asked),
        job=asked.job or program.stem,
        schedule=parse(asked.schedule),
        folder=asked.dir,
        python=here.python(asked),
    )
    return Run(options).run()
