"""Training flags: the same for `edl train` and the trainers of `edl submit`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from edl.errors import SettingError
from edl.jobs.flags import Flags, whole_number
from edl.sources.leased_records import SHUFFLES

EPOCH = "epoch"
CHECKPOINT_STEPS = 100
MICRO_BATCHES = 8
SERVERS, MAX_SERVERS = 2, 64
"""Number of parameter servers: by default, and the limit of EDL's admission."""
_MAX_SEED = 2**31 - 1


def add_arguments(parser: argparse.ArgumentParser, *, needs_data: bool = True) -> None:
    """Adds the model and the training flags, which are passed on to trainers.

    Args:
        parser: Receives them.
        needs_data: Whether --data is required; otherwise the command supplies it.
    """
    parser.add_argument(
        "model", help="a Python file with the functions model, loss, optimizer, feed and metrics"
    )
    flags = Flags(parser, "training")
    flags.add(
        "--data",
        required=needs_data,
        metavar="PATH",
        help="training data: .npz, .csv, a file of edl.records, or a folder of one kind"
        + ("" if needs_data else " (default: the job's, EDL_DATA)"),
    )
    _loop(flags)
    _files(flags)
    flags.add(
        "--on-nan",
        choices=("fail", "skip"),
        default="fail",
        help="at a NaN or infinite loss: fail the job, or skip the step (default fail)",
    )


def _loop(flags: Flags) -> None:
    flags.add(
        "--async",
        dest="asynchronous",
        action="store_true",
        help="train with parameter servers, each trainer at its own speed",
    )
    flags.add(
        "--sync",
        dest="synchronous",
        action="store_true",
        help="train all together: each step is one of all trainers, with one batch (the default)",
    )
    flags.add_count("--epochs", "epochs (default: the job's, EDL_EPOCHS, or 1)", most=10**6)
    flags.add_count(
        "--batch-size",
        "records per step; with --sync, of all trainers together (default 64)",
        default=64,
    )
    flags.add_count(
        "--micro-batches",
        "with --sync: parts of a step that trainers share; trainers beyond this number "
        f"have no work (default {MICRO_BATCHES})",
        most=10**6,
    )
    flags.add(
        "--scale-learning-rate",
        action="store_true",
        help="with --sync: one part per trainer, and a learning rate in proportion to their number",
    )
    flags.add_count(
        "--max-staleness",
        "with --async: compute a gradient again if it is more than N versions old",
        least=0,
    )
    flags.add(
        "--modulate",
        action="store_true",
        help="with --async: divide the learning rate of a gradient by its age in versions",
    )
    flags.add_count(
        "--seed",
        "seed of parameters, order of records and dropout (default 0)",
        least=0,
        most=_MAX_SEED,
        default=0,
    )
    flags.add(
        "--shuffle",
        choices=SHUFFLES,
        default=SHUFFLES[0],
        help="what each epoch shuffles (default records): tasks where reading records "
        "at random is slow",
    )


def _files(flags: Flags) -> None:
    flags.add("--evaluate", metavar="PATH", help="held-out data for evaluations")
    flags.add(
        "--evaluate-every",
        type=_every,
        default=EPOCH,
        metavar="N|epoch",
        help="steps between evaluations (default: one per epoch); the last model is always "
        "evaluated",
    )
    flags.add(
        "--checkpoints",
        metavar="DIR",
        help="folder to which checkpoints are saved and from which training continues",
    )
    flags.add_count("--checkpoint-every", f"steps between checkpoints (default {CHECKPOINT_STEPS})")
    flags.add(
        "--export", metavar="DIR", help="folder to which one trainer writes the trained model"
    )


def check(args: argparse.Namespace, async_flags: Sequence[str] = ("--servers",)) -> None:
    """Refuses flags that contradict each other.

    Args:
        args: The command line.
        async_flags: Further flags that are valid only with `--async`.

    Raises:
        SettingError: Two flags conflict; the text names them.
    """
    if args.synchronous and args.asynchronous:
        raise SettingError("--sync and --async exclude each other: choose one")
    _check_mode(args, async_flags)
    if args.checkpoint_every and not (args.checkpoints or args.asynchronous):
        raise SettingError("--checkpoint-every needs --checkpoints DIR, where to save them")
    if args.evaluate_every != EPOCH and not args.evaluate:
        raise SettingError("--evaluate-every needs --evaluate PATH, data to evaluate on")
    if not args.asynchronous:
        _check_parts(args)


def _check_mode(args: argparse.Namespace, async_flags: Sequence[str]) -> None:
    """Refuses flags of the other mode."""
    if args.asynchronous:
        names: Sequence[str] = ("--micro-batches", "--scale-learning-rate")
    else:
        names = ("--max-staleness", "--modulate", *async_flags)
    mode = "--sync" if args.asynchronous else "--async"
    for name in names:
        if getattr(args, name[2:].replace("-", "_")) not in (None, False):
            raise SettingError(f"{name} is for {mode}: leave it out, or give {mode}")


def _check_parts(args: argparse.Namespace) -> None:
    """Refuses more parts of a step than it has records."""
    if args.micro_batches is None:
        return
    if args.micro_batches > args.batch_size:
        raise SettingError(
            f"--micro-batches is {args.micro_batches}, but --batch-size is {args.batch_size}: "
            "each part of a step needs at least one record"
        )


def micro_batches(args: argparse.Namespace, trainers: int = 1) -> int:
    """Returns the number of parts of a step.

    Args:
        args: The command line.
        trainers: The maximum number of trainers.
    """
    if args.micro_batches is not None:
        return int(args.micro_batches)
    return min(int(args.batch_size), max(MICRO_BATCHES, trainers))


def servers(args: argparse.Namespace) -> int:
    """Returns the number of parameter servers; 0 for synchronous training."""
    return int(args.servers or SERVERS) if args.asynchronous else 0


def checkpoint_steps(args: argparse.Namespace) -> int:
    """Returns the steps between checkpoints; 0 disables them."""
    if not (args.checkpoints or args.asynchronous):
        return 0
    return int(args.checkpoint_every or CHECKPOINT_STEPS)


def evaluation_steps(args: argparse.Namespace, shape: Mapping[str, Any]) -> int:
    """Returns the steps between evaluations; 0 for none before the end.

    An epoch counts as the number of batches of --batch-size, even if --scale-learning-rate changes
    the batches.

    Args:
        args: The command line.
        shape: Description of the training data.
    """
    if args.evaluate_every != EPOCH:
        return int(args.evaluate_every)
    records = sum(int(file["records"]) for file in shape.get("files", ()))
    return -(-(records or int(shape.get("records") or 0)) // int(args.batch_size))


def _every(text: str) -> str | int:
    if text == EPOCH:
        return text
    try:
        return whole_number(1, 10**9)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or `{EPOCH}`") from error
