"""`edl predict model.py --data D --model DIR --output DIR`: what a trained model says of records."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from edl.checkpoints import latest_checkpoint
from edl.commands import here
from edl.commands.words import Flags, whole
from edl.errors import SettingError
from edl.jobs import trainer
from edl.model import outline

NAME = "predict"
HELP = "apply a trained model to records: on this machine, or as one trainer of a job"


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("model", help="the Python file that it was trained with")
    flags = Flags(parser, "prediction")
    flags.add("--data", required=True, metavar="PATH", help="as for `edl train`")
    flags.add(
        "--model",
        "--checkpoint",
        dest="parameters",
        required=True,
        metavar="DIR",
        help="what `edl train --export` wrote, a checkpoint, or a folder of checkpoints (the newest)",
    )
    flags.add(
        "--output",
        required=True,
        metavar="DIR",
        help="gets a file part-FILE-RECORD.npz for each task, whole or absent, and index.json",
    )
    flags.add(
        "--join", metavar="FILE.npz", help="all outputs in one file, in the order of the records"
    )
    flags.add("--batch-size", type=whole(1, 10**9), default=256, metavar="N", help="default 256")
    here.describe(parser)
    parser.set_defaults(flags=flags)


def act(asked: argparse.Namespace) -> int:
    """Predicts.

    Raises:
        EdlError: Flags or files that cannot be used.
    """
    if asked.join is not None and not asked.join.endswith(".npz"):
        raise SettingError(f"--join is {asked.join!r:.200}: name a file that ends in .npz")
    if os.environ.get("EDL_MASTER"):
        here.refuse(asked)
        return trainer.run(lambda: trainer.load("edl.jobs.predicting", "Predicting", asked))
    outline.check(asked.model)
    here.exists("--data", asked.data)
    here.exists("--model", asked.parameters)
    _check_empty(asked)
    newest = latest_checkpoint(asked.parameters)
    if newest is not None:
        asked.parameters = str(newest.path)  # the same for all, whatever is saved meanwhile
    return here.run(asked, ["predict", asked.model, *asked.flags.words(asked)])


def _check_empty(asked: argparse.Namespace) -> None:
    """Outputs of two jobs must not be mixed up.

    Raises:
        SettingError: There are some, and no journal that knows of them.
    """
    folder = Path(asked.output)
    if folder.is_dir() and any(folder.glob("part-*.npz")) and asked.dir is None:
        raise SettingError(
            f"--output {folder} holds outputs already: name another folder, or remove it (with --dir "
            "a job that was ended early is continued)"
        )
