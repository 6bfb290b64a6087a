"""`edl train model.py --data D`: trains a model file, on this machine or as one trainer of a job."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from edl.commands import here, training, words
from edl.errors import SettingError
from edl.jobs import trainer
from edl.model import outline

NAME = "train"
HELP = "train a model file: on this machine, or as one trainer of a job where EDL_MASTER is set"
_SERVERS = 2
_MOST_SERVERS = 64


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    flags = training.describe(parser)
    group = here.describe(parser)
    group.add_argument(
        "--servers",
        type=words.whole(1, _MOST_SERVERS),
        metavar="N",
        help=f"parameter servers, with --async (default {_SERVERS})",
    )
    parser.set_defaults(flags=flags)


def act(asked: argparse.Namespace) -> int:
    """Trains.

    Raises:
        EdlError: Flags or files that cannot be used.
    """
    training.check(asked)
    if os.environ.get("EDL_MASTER"):
        here.refuse(asked, "servers")
        return trainer.run(lambda: _job(asked))
    outline.check(asked.model)
    for flag in ("data", "evaluate"):
        here.exists(f"--{flag}", getattr(asked, flag))
    _check_continued(asked)
    count = here.trainers(asked)
    if not asked.asynchronous:
        asked.micro_batches = training.micro_batches(asked, count)
    return here.run(
        asked,
        ["train", asked.model, *asked.flags.words(asked)],
        servers=(asked.servers or _SERVERS) if asked.asynchronous else 0,
        server_checkpoints=Path(asked.checkpoints) if asked.checkpoints else None,
    )


def _job(asked: argparse.Namespace) -> trainer.Job:
    """What a trainer does."""
    if asked.asynchronous:
        return trainer.load("edl.jobs.asynchronous", "Asynchronous", asked)
    return trainer.load("edl.jobs.synchronous", "Synchronous", asked)


def _check_continued(asked: argparse.Namespace) -> None:
    """A journal that is continued knows what was trained, and not the model.

    Raises:
        SettingError: There is one, and no checkpoints that have the model.
    """
    found = asked.dir is not None and (asked.dir / "journal").exists()
    if (
        found
        and not asked.checkpoints
        and not (asked.asynchronous and (asked.dir / "servers").exists())
    ):
        raise SettingError(
            f"--dir {asked.dir} has a journal, which knows what data was trained, but the model is "
            "gone without --checkpoints DIR: give both, or another --dir"
        )
