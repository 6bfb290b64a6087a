"""`edl predict model.py --data D --model DIR --output DIR`: applies a trained model to records."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from edl.commands import local_run
from edl.data.checkpoints import latest_checkpoint
from edl.errors import SettingError
from edl.jobs import trainer
from edl.jobs.flags import Flags
from edl.model import static_check

NAME = "predict"
HELP = "apply a trained model to records: on this machine, or as one trainer of a job"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `edl predict`."""
    parser.add_argument("model", help="the model file used for training")
    flags = Flags(parser, "prediction")
    flags.add("--data", required=True, metavar="PATH", help="as for `edl train`")
    flags.add(
        "--model",
        "--checkpoint",
        dest="parameters",
        required=True,
        metavar="DIR",
        help="an export of `edl train`, a checkpoint, or a folder of checkpoints (the newest is used)",
    )
    flags.add(
        "--output",
        required=True,
        metavar="DIR",
        help="folder for index.json and one file part-FILE-RECORD.npz per task, written atomically",
    )
    flags.add(
        "--join",
        metavar="FILE.npz",
        help="also write all outputs to this file, in record order",
    )
    flags.add_count("--batch-size", "records (default 256)", default=256)
    local_run.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the prediction; returns the exit code.

    Raises:
        EdlError: A flag or file is invalid.
    """
    if args.join is not None and not args.join.endswith(".npz"):
        raise SettingError(f"--join is {args.join!r:.200}: the file name must end in .npz")
    if os.environ.get("EDL_MASTER"):
        local_run.refuse_flags(args)
        return trainer.run(lambda: trainer.load("edl.jobs.prediction", "PredictionJob", args))
    static_check.check(args.model)
    local_run.check_exists("--data", args.data)
    local_run.check_exists("--model", args.parameters)
    _check_empty(args)
    local_run.check_folder("--output", args.output)
    if args.join is not None:
        local_run.check_folder("--join", args.join, folder=Path(args.join).parent)
    newest = latest_checkpoint(args.parameters)
    if newest is not None:
        # chosen here, so that all trainers read the same checkpoint
        args.parameters = str(newest.path)
    return local_run.run_job(args, ["predict", args.model, *args.flags.to_arguments(args)])


def _check_empty(args: argparse.Namespace) -> None:
    """Refuses an output folder that has files of another job.

    Raises:
        SettingError: The folder has outputs, and there is no `--dir` with a journal to continue.
    """
    folder = Path(args.output)
    if folder.is_dir() and any(folder.glob("part-*.npz")) and args.dir is None:
        raise SettingError(
            f"--output {folder} already holds outputs: name another folder, or remove this one; to "
            "continue an interrupted job, give its --dir"
        )
