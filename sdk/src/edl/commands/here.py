"""What commands share that run a job on this machine: flags, and trainers that do the same command."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from edl.commands import words
from edl.errors import SettingError
from edl.jobs.telling import RESULT, STEP
from edl.local.run import Options, Run
from edl.local.schedule import parse

_TRAINERS = 2
_FLAGS = {
    "trainers": "-n",
    "job": "--job",
    "schedule": "--schedule",
    "dir": "--dir",
    "python": "--python",
}


def describe(parser: argparse.ArgumentParser) -> Any:
    """Adds the flags; returns their group, for more."""
    group = parser.add_argument_group("the job on this machine (where EDL_MASTER is not set)")
    group.add_argument("-n", "--trainers", type=int, help=f"to begin with (default {_TRAINERS})")
    group.add_argument("--job", help="its name; the program's by default")
    group.add_argument(
        "--schedule",
        default="",
        metavar="WHEN:WHAT,...",
        help="what happens when, such as `2s:+1, 40%%:kill, 60%%:kill master, 5s:-1`",
    )
    group.add_argument(
        "--dir", type=Path, help="keeps journal and logs; a journal there is continued"
    )
    group.add_argument(
        "--python", default=sys.executable, help="the trainers' interpreter (default: this one)"
    )
    return group


def trainers(asked: argparse.Namespace) -> int:
    """How many to begin with.

    Raises:
        SettingError: Less than one.
    """
    found: int = _TRAINERS if asked.trainers is None else asked.trainers
    if found < 1:
        raise SettingError(f"-n is {found}: at least one trainer is needed")
    return found


def python(asked: argparse.Namespace) -> str:
    """The trainers' interpreter.

    Raises:
        SettingError: There is none of that name.
    """
    found: str | None = shutil.which(asked.python)
    if found is None:
        raise SettingError(f"--python is {asked.python!r}, which is no program that can be run")
    return found


def refuse(asked: argparse.Namespace, *more: str) -> None:
    """One trainer of a job is told nothing of the others.

    Raises:
        SettingError: A flag for jobs on this machine is given.
    """
    given = [
        flag
        for name, flag in _FLAGS.items()
        if getattr(asked, name) not in (None, "", sys.executable)
    ]
    given += [f"--{name}" for name in more if getattr(asked, name) is not None]
    if given:
        raise SettingError(
            f"{given[0]} is for jobs on this machine, but EDL_MASTER is set, so this is one trainer "
            "of a job that runs already: drop the flag, or unset EDL_MASTER"
        )


def exists(flag: str, path: str | None) -> None:
    """Makes sure that a file or folder is there before anything is started.

    Raises:
        SettingError: It is not.
    """
    if path is not None and not Path(path).exists():
        raise SettingError(f"{flag} is {path!r:.200}, and there is no such file or folder")


def run(
    asked: argparse.Namespace,
    command: list[str],
    *,
    servers: int = 0,
    server_checkpoints: Path | None = None,
) -> int:
    """Runs a job whose trainers do an `edl` command.

    Returns:
        The exit code.
    """
    options = Options(
        program=["-m", "edl", *command],
        trainers=trainers(asked),
        job=asked.job or Path(asked.model).stem,
        schedule=parse(asked.schedule),
        folder=asked.dir,
        python=python(asked),
        servers=servers,
        server_checkpoints=server_checkpoints,
        hopeless=words.BAD_USE,
        newest=STEP,
        result=RESULT,
    )
    return Run(options).run()
