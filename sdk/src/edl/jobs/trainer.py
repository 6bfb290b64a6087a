"""Runs one trainer of a job; turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Callable

from edl.errors import CheckpointError, EdlError, MasterError, SettingError, one_line
from edl.jobs.flags import BAD_USE, DONE, FAILED
from edl.master import sigterm
from edl.master.session import Session, session
from edl.model.errors import OutOfMemory, UserCodeError

log = logging.getLogger("edl")

_PROGRAM_FIELDS = ("code", "optimizer", "parameters", "tables")
"""If the master or a server refuses one of these fields, the program is wrong in every trainer."""
Job = Callable[[Session], bool]
"""Runs the job; returns True if it is done, False if the master stopped it."""


def run(prepare: Callable[[], Job]) -> int:
    """Runs a job to its end.

    Args:
        prepare: Loads the model and the data before this trainer joins the job. Its errors would
            occur in every other trainer, too.

    Returns:
        The exit code.
    """
    try:
        with sigterm.exiting_on_sigterm():
            job = prepare()
        member = session()
    except EdlError as error:
        _print_error(error)
        return FAILED if isinstance(error, OutOfMemory) else BAD_USE
    try:
        done = job(member)
    except (EdlError, MemoryError) as error:
        _report_failure(member, error)
        member.leave()  # writes log lines, so it must precede the error, which is the last line
        _print_error(error)
        return BAD_USE if _is_permanent(error) else FAILED
    if done:
        return DONE
    reason = _stop_reason(member)
    member.leave()
    _print_error(EdlError(reason))
    return FAILED


def load(module: str, name: str, args: argparse.Namespace) -> Job:
    """Creates a job from a module that needs numpy.

    Args:
        module: Name of the module.
        name: Name of the job's class in it.
        args: The command line.

    Raises:
        EdlError: numpy is not installed, or the model or the data is invalid.
    """
    try:
        job_class = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise SettingError("models need numpy: pip install 'edl-sdk[numpy]'") from error
    job: Job = job_class(args)
    return job


def _print_error(error: BaseException) -> None:
    """Prints the error in one line, after the traceback if user code raised it."""
    if isinstance(error, UserCodeError):
        print(error.trace, file=sys.stderr)
    if isinstance(error, MemoryError):
        text = "out of memory: lower --batch-size, or raise --micro-batches and the memory"
    else:
        text = str(error) if isinstance(error, EdlError) else one_line(error)
    print(f"edl: {text}", file=sys.stderr, flush=True)


def _report_failure(member: Session, error: BaseException) -> None:
    """Fails the job if user code raised the error: every other trainer would fail, too."""
    if isinstance(error, UserCodeError):
        try:
            member.control().fail(str(error))
        except MasterError as report_error:
            log.warning("could not report the job's failure to the master: %s", report_error)


def _is_permanent(error: BaseException) -> bool:
    """Returns whether a replacement of this trainer would fail in the same way.

    It would if a checkpoint is invalid, or if a refusal names a field of the program.
    """
    field = str(getattr(error, "field", None))
    return isinstance(error, CheckpointError) or field.partition(".")[0] in _PROGRAM_FIELDS


def _stop_reason(member: Session) -> str:
    """Returns why the master stopped the job."""
    try:
        reason = member.control().status().get("reason")
    except MasterError:
        reason = ""
    return f"the job failed: {reason}" if reason else "the master stopped the job before its end"
