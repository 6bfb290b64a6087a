"""`edl agent --nproc 8 -- python train.py`: a script of torchrun as the trainers of an elastic job."""

from __future__ import annotations

import argparse
import shutil

from edl.agent.agent import Agent
from edl.errors import SettingError

NAME = "agent"
HELP = "run a script of torchrun as this pod's part of an elastic job, without changes to it"
_MAX_PROCESSES = 1_024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `edl agent`."""
    parser.add_argument(
        "--nproc",
        type=int,
        default=1,
        metavar="N",
        help="processes to start, such as one for each GPU of the pod (default 1)",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=3,
        metavar="N",
        help="how often processes that failed are started again before the job fails; "
        "changes of members do not count (default 3)",
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="two dashes, then the program with its arguments: -- python train.py",
    )


def run(args: argparse.Namespace) -> int:
    """Runs it.

    Raises:
        EdlError: A flag is invalid, or the master refuses.
    """
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise SettingError(
            "no command: write it behind two dashes, as in edl agent -- python train.py"
        )
    for flag, value, least in (
        ("--nproc", args.nproc, 1),
        ("--max-restarts", args.max_restarts, 0),
    ):
        if not least <= value <= _MAX_PROCESSES:
            raise SettingError(f"{flag} is {value}: write {least} to {_MAX_PROCESSES}")
    path = shutil.which(command[0])
    if path is None:
        raise SettingError(
            f"{command[0]!r:.80} is no program that can be run: name one "
            "behind --, such as -- python train.py"
        )
    return Agent([path, *command[1:]], args.nproc, args.max_restarts).run()
