"""The flags that say how to train: the same for `edl train` and for the trainers of `edl submit`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from edl.commands.words import Flags, whole
from edl.errors import SettingError

EPOCH = "epoch"
CHECKPOINT_STEPS = 100
MICRO_BATCHES = 8
_MOST_SEED = 2**31 - 1


def describe(parser: argparse.ArgumentParser) -> Flags:
    """Adds the model and the flags.

    Returns:
        The flags, to be said again to trainers.
    """
    parser.add_argument(
        "model", help="a Python file with the functions model, loss, optimizer, feed and metrics"
    )
    flags = Flags(parser, "training")
    flags.add(
        "--data",
        required=True,
        metavar="PATH",
        help="what to train on: .npz, .csv, a file of edl.records, or a folder of one kind",
    )
    _loop(flags)
    _files(flags)
    flags.add(
        "--on-nan",
        choices=("fail", "skip"),
        default="fail",
        help="a loss that is no number ends the job, or its step is left out (default fail)",
    )
    return flags


def _loop(flags: Flags) -> None:
    flags.add(
        "--async",
        dest="asynchronous",
        action="store_true",
        help="parameter servers: each trainer goes at its own speed",
    )
    flags.add(
        "--sync",
        dest="synchronous",
        action="store_true",
        help="all trainers together make each step, like one with the whole batch (the default)",
    )
    flags.add("--epochs", type=whole(1, 10**6), default=1, metavar="N", help="default 1")
    flags.add(
        "--batch-size",
        type=whole(1, 10**9),
        default=64,
        metavar="N",
        help="records of a step; with --sync of all trainers together (default 64)",
    )
    flags.add(
        "--micro-batches",
        type=whole(1, 10**6),
        metavar="N",
        help="with --sync: into how many parts a step is cut that trainers share; no more trainers "
        f"than that find work (default {MICRO_BATCHES})",
    )
    flags.add(
        "--scale-learning-rate",
        action="store_true",
        help="with --sync: one part for each trainer, and the learning rate follows their number",
    )
    flags.add(
        "--max-staleness",
        type=whole(0, 10**9),
        metavar="N",
        help="with --async: a gradient that is more versions old is computed again",
    )
    flags.add(
        "--modulate",
        action="store_true",
        help="with --async: a gradient that is n versions old counts 1/n",
    )
    flags.add(
        "--seed",
        type=whole(0, _MOST_SEED),
        default=0,
        metavar="N",
        help="of parameters, order of records and dropout (default 0)",
    )


def _files(flags: Flags) -> None:
    flags.add(
        "--evaluate", metavar="PATH", help="held-out data: loss and metrics on it, now and then"
    )
    flags.add(
        "--evaluate-every",
        type=_every,
        default=EPOCH,
        metavar="N|epoch",
        help="steps from one evaluation to the next (default: once an epoch); the last model is "
        "evaluated in any case",
    )
    flags.add("--checkpoints", metavar="DIR", help="saved there, and gone on from there")
    flags.add(
        "--checkpoint-every",
        type=whole(1, 10**9),
        metavar="N",
        help=f"steps from one checkpoint to the next (default {CHECKPOINT_STEPS})",
    )
    flags.add("--export", metavar="DIR", help="one trainer writes the trained model there")


def check(asked: argparse.Namespace, more: Sequence[str] = ("--servers",)) -> None:
    """Refuses flags that contradict each other.

    Args:
        asked: The command line.
        more: Further flags that mean something with `--async` only.

    Raises:
        SettingError: Naming the flag and the way out.
    """
    if asked.synchronous and asked.asynchronous:
        raise SettingError("--sync and --async exclude each other: choose one")
    _check_mode(asked, more)
    if asked.checkpoint_every and not (asked.checkpoints or asked.asynchronous):
        raise SettingError("--checkpoint-every needs --checkpoints DIR, where to save them")
    if asked.evaluate_every != EPOCH and not asked.evaluate:
        raise SettingError("--evaluate-every needs --evaluate PATH, data to evaluate on")
    if not asked.asynchronous:
        _check_parts(asked)


def _check_mode(asked: argparse.Namespace, more: Sequence[str]) -> None:
    """Flags that mean something in one of the two modes only."""
    if asked.asynchronous:
        names: Sequence[str] = ("--micro-batches", "--scale-learning-rate")
    else:
        names = ("--max-staleness", "--modulate", *more)
    mode = "--sync" if asked.asynchronous else "--async"
    for name in names:
        if getattr(asked, name[2:].replace("-", "_")) not in (None, False):
            raise SettingError(f"{name} is for {mode}: leave it out, or give {mode}")


def _check_parts(asked: argparse.Namespace) -> None:
    """A step must have a record for each part that it is cut into."""
    if asked.micro_batches is None:
        return
    if asked.micro_batches > asked.batch_size:
        raise SettingError(
            f"--micro-batches is {asked.micro_batches}, but --batch-size is {asked.batch_size}: "
            "each part of a step needs at least one record"
        )


def micro_batches(asked: argparse.Namespace, trainers: int = 1) -> int:
    """Into how many parts a step is cut.

    Args:
        asked: The command line.
        trainers: So many are expected at most.
    """
    if asked.micro_batches is not None:
        return int(asked.micro_batches)
    return min(int(asked.batch_size), max(MICRO_BATCHES, trainers))


def checkpoint_steps(asked: argparse.Namespace) -> int:
    """Steps from one checkpoint to the next; 0 where none are to be written."""
    if not (asked.checkpoints or asked.asynchronous):
        return 0
    return int(asked.checkpoint_every or CHECKPOINT_STEPS)


def evaluation_steps(asked: argparse.Namespace, shape: Mapping[str, Any]) -> int:
    """Steps from one evaluation to the next; 0 for none before the end.

    An epoch counts as many steps as whole batches need, also where --scale-learning-rate makes
    other batches of it.

    Args:
        asked: The command line.
        shape: The training data's description.
    """
    if asked.evaluate_every != EPOCH:
        return int(asked.evaluate_every)
    records = sum(int(one["records"]) for one in shape.get("files", ()))
    return -(-(records or int(shape.get("records") or 0)) // int(asked.batch_size))


def _every(text: str) -> str | int:
    if text == EPOCH:
        return text
    try:
        return whole(1, 10**9)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or `{EPOCH}`") from error
