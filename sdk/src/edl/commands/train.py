"""`edl train model.py --data D`: trains a model file, on this machine or as one trainer of a job."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from edl.commands import local_run
from edl.errors import SettingError
from edl.jobs import trainer, training_flags
from edl.jobs.flags import whole_number
from edl.master import variables
from edl.model import static_check

NAME = "train"
HELP = "train a model file on this machine, or, if EDL_MASTER is set, as one trainer of a job"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `edl train`."""
    training_flags.add_arguments(parser, needs_data=False)
    group = local_run.add_arguments(parser)
    group.add_argument(
        "--servers",
        type=whole_number(1, training_flags.MAX_SERVERS),
        metavar="N",
        help=f"number of parameter servers, with --async (default {training_flags.SERVERS})",
    )


def run(args: argparse.Namespace) -> int:
    """Trains the model file; returns the exit code.

    Raises:
        EdlError: A flag or file is invalid.
    """
    training_flags.check(args)
    _take_from_job(args)
    if os.environ.get("EDL_MASTER"):
        local_run.refuse_flags(args, "servers")
        return trainer.run(lambda: _job(args))
    static_check.check(args.model)
    for flag in ("data", "evaluate"):
        local_run.check_exists(f"--{flag}", getattr(args, flag))
    _check_continued(args)
    local_run.check_folder("--checkpoints", args.checkpoints)
    if args.export is not None:
        final = Path(args.export).resolve()
        # an export is renamed into place: the parent must be writable if the folder is missing
        folder = final if final.exists() else final.parent
        local_run.check_folder("--export", args.export, folder=folder)
    count = local_run.trainer_count(args)
    if not args.asynchronous:
        args.micro_batches = training_flags.micro_batches(args, count)
    return local_run.run_job(
        args,
        ["train", args.model, *args.flags.to_arguments(args)],
        servers=training_flags.servers(args),
        server_checkpoints=Path(args.checkpoints) if args.checkpoints else None,
    )


def _take_from_job(args: argparse.Namespace) -> None:
    """Takes data and epochs that no flag gives from the environment variables of the job's pods.

    Raises:
        SettingError: The data is not given, or EDL_EPOCHS is not a whole number.
    """
    args.data = args.data or os.environ.get("EDL_DATA")
    if not args.data:
        raise SettingError(
            "no training data: set --data PATH, or spec.master.data of the TrainingJob (EDL_DATA)"
        )
    if args.epochs is None:
        args.epochs = variables.epochs()


def _job(args: argparse.Namespace) -> trainer.Job:
    """Returns the job of a trainer."""
    if args.asynchronous:
        return trainer.load("edl.jobs.asynchronous", "AsyncTrainingJob", args)
    return trainer.load("edl.jobs.synchronous", "SyncTrainingJob", args)


def _check_continued(args: argparse.Namespace) -> None:
    """Refuses to continue a journal without checkpoints: it records trained data, but not the model.

    Raises:
        SettingError: There is a journal, and no `--checkpoints`.
    """
    has_journal = args.dir is not None and (args.dir / "journal").exists()
    if (
        has_journal
        and not args.checkpoints
        and not (args.asynchronous and (args.dir / "servers").exists())
    ):
        raise SettingError(
            f"--dir {args.dir} has a journal of the data trained so far, but the model is lost "
            "without --checkpoints DIR: set both, or another --dir"
        )
