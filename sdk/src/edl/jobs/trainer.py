"""Runs one trainer of a cluster's or a local job, and turns what goes wrong into words and codes."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Callable

from edl import stopping
from edl.commands.words import BAD_USE, DONE, FAILED
from edl.errors import CheckpointError, EdlError, MasterError, SettingError, one_line
from edl.model.errors import OutOfMemory, UserCodeError
from edl.process import session
from edl.session import Session

log = logging.getLogger("edl")

_OF_PROGRAMS = ("code", "optimizer", "parameters", "tables")
"""Begins the names of fields that say what a program is."""
Job = Callable[[Session], bool]
"""Trains; whether the job is done, False where the master said stop."""


def run(prepare: Callable[[], Job]) -> int:
    """Runs it to its end.

    Args:
        prepare: Loads all that is needed, before this trainer joins; what goes wrong there would go
            wrong in any other process too.

    Returns:
        The exit code.
    """
    try:
        with stopping.ending_at_once():
            job = prepare()
        member = session()
    except EdlError as error:
        _say(error)
        return FAILED if isinstance(error, OutOfMemory) else BAD_USE
    try:
        done = job(member)
    except (EdlError, MemoryError) as error:
        _end_job(member, error)
        member.leave()  # its words come first: the error is what is read last
        _say(error)
        return BAD_USE if _differs(error) else FAILED
    if done:
        return DONE
    why = _why(member)
    member.leave()
    _say(EdlError(why))
    return FAILED


def load(module: str, name: str, asked: argparse.Namespace) -> Job:
    """A job of a module that needs numpy.

    Args:
        module: Its name.
        name: Of the class.
        asked: The command line.

    Raises:
        EdlError: numpy is not installed, or the model or data cannot be used.
    """
    try:
        made = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise SettingError("models need numpy: pip install 'edl-sdk[numpy]'") from error
    found: Job = made(asked)
    return found


def _say(error: BaseException) -> None:
    """One line, below the user's part of a traceback where it was his code."""
    if isinstance(error, UserCodeError):
        print(error.trace, file=sys.stderr)
    if isinstance(error, MemoryError):
        text = "out of memory: lower --batch-size, or raise --micro-batches and the memory"
    else:
        text = str(error) if isinstance(error, EdlError) else one_line(error)
    print(f"edl: {text}", file=sys.stderr, flush=True)


def _end_job(member: Session, error: BaseException) -> None:
    """A bug in the user's code ends the job: every other trainer would come upon it too."""
    if isinstance(error, UserCodeError):
        try:
            member.control().fail(str(error))
        except MasterError as unheard:
            log.warning("the master did not hear that the job failed: %s", unheard)


def _differs(error: BaseException) -> bool:
    """Whether this trainer's program or checkpoint cannot be: its replacement would be alike.

    Refusals name the field that they are about, those of the master and those of servers.
    """
    field = str(getattr(error, "field", None))
    return isinstance(error, CheckpointError) or field.partition(".")[0] in _OF_PROGRAMS


def _why(member: Session) -> str:
    """Why the master said stop."""
    try:
        reason = member.control().status().get("reason")
    except MasterError:
        reason = ""
    return f"the job has failed: {reason}" if reason else "the job was stopped before its end"
