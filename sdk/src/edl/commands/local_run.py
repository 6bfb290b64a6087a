"""Runs a job on this machine for `edl` commands whose trainers run the same command."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from edl.errors import SettingError
from edl.jobs.flags import BAD_USE
from edl.jobs.progress_lines import RESULT, STEP
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


def add_arguments(parser: argparse.ArgumentParser) -> Any:
    """Adds the flags of local jobs; returns the argument group."""
    group = parser.add_argument_group("job on this machine (if EDL_MASTER is not set)")
    group.add_argument(
        "-n", "--trainers", type=int, help=f"initial number of trainers (default {_TRAINERS})"
    )
    group.add_argument("--job", help="name of the job (default: the program's name)")
    group.add_argument(
        "--schedule",
        default="",
        metavar="WHEN:WHAT,...",
        help="actions at given times, for example `2s:+1, 40%%:kill, 60%%:kill master, 5s:-1`",
    )
    group.add_argument(
        "--dir",
        type=Path,
        help="directory for the journal and logs; if it has a journal, that job is continued",
    )
    group.add_argument(
        "--python",
        default=sys.executable,
        help="Python interpreter for the trainers (default: this one)",
    )
    return group


def trainer_count(args: argparse.Namespace) -> int:
    """Returns the initial number of trainers.

    Raises:
        SettingError: The number is less than one.
    """
    count: int = _TRAINERS if args.trainers is None else args.trainers
    if count < 1:
        raise SettingError(f"-n is {count}: at least one trainer is needed")
    return count


def interpreter(args: argparse.Namespace) -> str:
    """Returns the path of the trainers' interpreter.

    Raises:
        SettingError: The interpreter does not exist.
    """
    path: str | None = shutil.which(args.python)
    if path is None:
        raise SettingError(f"--python is {args.python!r}: it is not an executable program")
    return path


def refuse_flags(args: argparse.Namespace, *extra_names: str) -> None:
    """Refuses flags of local jobs in a process that is a trainer of a running job.

    Raises:
        SettingError: One of these flags is set.
    """
    flags = [
        flag
        for name, flag in _FLAGS.items()
        if getattr(args, name) not in (None, "", sys.executable)
    ]
    flags += [f"--{name}" for name in extra_names if getattr(args, name) is not None]
    if flags:
        raise SettingError(
            f"{flags[0]} is for jobs on this machine, but EDL_MASTER is set, which makes this process "
            "a trainer of a running job: remove the flag, or unset EDL_MASTER"
        )


def check_exists(flag: str, path: str | None) -> None:
    """Checks that a file or folder exists, before any process is started.

    Raises:
        SettingError: The file or folder does not exist.
    """
    if path is not None and not Path(path).exists():
        raise SettingError(f"{flag} is {path!r:.200}: no such file or folder")


def check_folder(flag: str, path: str | Path | None, *, folder: Path | None = None) -> None:
    """Checks that a folder is writable, before any process is started; creates it if it is missing.

    Args:
        flag: The flag to name in the error.
        path: The flag's value; None checks nothing.
        folder: The folder to check, if it differs from `path`.

    Raises:
        SettingError: The folder is not writable.
    """
    if path is None:
        return
    folder = folder or Path(path)
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"{flag} is {str(path)!r:.200}, but {folder} is a file: name a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingError(
            f"{flag} is {str(path)!r:.200}, but {folder} is not writable: {error.strerror}"
        ) from error


def run_job(
    args: argparse.Namespace,
    command: list[str],
    *,
    servers: int = 0,
    server_checkpoints: Path | None = None,
) -> int:
    """Runs a job whose trainers run an `edl` command.

    Returns:
        The exit code.
    """
    check_folder("--dir", args.dir)
    options = Options(
        program=["-m", "edl", *command],
        trainers=trainer_count(args),
        job=args.job or Path(args.model).stem,
        schedule=parse(args.schedule),
        folder=args.dir,
        python=interpreter(args),
        servers=servers,
        server_checkpoints=server_checkpoints,
        fatal_exit_code=BAD_USE,
        progress_prefix=STEP,
        result_prefix=RESULT,
    )
    return Run(options).run()
