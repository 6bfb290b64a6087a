"""The training flags of `edl train` and `edl submit`."""

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
"""Number of parameter servers: the default, and the limit that EDL's admission sets."""
_MAX_SEED = 2**31 - 1


def add_arguments(parser: argparse.ArgumentParser, *, needs_data: bool = True) -> None:
    """Adds the model argument and the training flags, which are passed on to trainers.

    Args:
        parser: Parser to which the arguments are added.
        needs_data: Whether --data is required; otherwise it defaults to the job's data.
    """
    parser.add_argument(
        "model", help="a Python file with the functions model, loss, optimizer, feed and metrics"
    )
    flags = Flags(parser, "training")
    flags.add(
        "--data",
        required=needs_data,
        metavar="PATH",
        help="training data: a .npz, .csv or edl.records file, or a folder of files of one kind"
        + ("" if needs_data else " (default: the job's, EDL_DATA)"),
    )
    _add_loop_flags(flags)
    _add_file_flags(flags)
    flags.add(
        "--on-nan",
        choices=("fail", "skip"),
        default="fail",
        help="if the loss is NaN or infinite: fail the job, or skip the step (default fail)",
    )


def _add_loop_flags(flags: Flags) -> None:
    flags.add(
        "--async",
        dest="asynchronous",
        action="store_true",
        help="train asynchronously with parameter servers; trainers do not wait for each other",
    )
    flags.add(
        "--sync",
        dest="synchronous",
        action="store_true",
        help="train synchronously: all trainers share the batch of each step (the default)",
    )
    flags.add_count("--epochs", "epochs (default: the job's, EDL_EPOCHS, or 1)", most=10**6)
    flags.add_count(
        "--batch-size",
        "records per step; with --sync, across all trainers (default 64)",
        default=64,
    )
    flags.add_count(
        "--micro-batches",
        "with --sync: parts of a batch that trainers share out; this is also the largest number "
        f"of trainers that have work (default {MICRO_BATCHES})",
        most=10**6,
    )
    flags.add(
        "--scale-learning-rate",
        action="store_true",
        help="with --sync: one micro-batch per trainer, and a learning rate proportional to their number",
    )
    flags.add_count(
        "--max-staleness",
        "with --async: recompute gradients that are more than N versions old",
        least=0,
    )
    flags.add(
        "--modulate",
        action="store_true",
        help="with --async: divide the learning rate of a gradient by its age in versions",
    )
    flags.add_count(
        "--seed",
        "seed for initial parameters, record order and dropout (default 0)",
        least=0,
        most=_MAX_SEED,
        default=0,
    )
    flags.add(
        "--shuffle",
        choices=SHUFFLES,
        default=SHUFFLES[0],
        help="what each epoch shuffles (default records); choose tasks if reading records "
        "in random order is slow",
    )


def _add_file_flags(flags: Flags) -> None:
    flags.add("--evaluate", metavar="PATH", help="held-out data for evaluations")
    flags.add(
        "--evaluate-every",
        type=_every,
        default=EPOCH,
        metavar="N|epoch",
        help="steps between evaluations (default: one evaluation per epoch); the final model is "
        "always evaluated",
    )
    flags.add(
        "--checkpoints",
        metavar="DIR",
        help="folder in which checkpoints are saved, and from which training resumes",
    )
    flags.add_count("--checkpoint-every", f"steps between checkpoints (default {CHECKPOINT_STEPS})")
    flags.add("--export", metavar="DIR", help="folder to which the trained model is exported")


def check(args: argparse.Namespace, async_flags: Sequence[str] = ("--servers",)) -> None:
    """Refuses flags that contradict each other.

    Args:
        args: The command line.
        async_flags: Further flags that are valid only with `--async`.

    Raises:
        SettingError: Two flags conflict; the message names them.
    """
    if args.synchronous and args.asynchronous:
        raise SettingError("--sync and --async are mutually exclusive: choose one")
    _check_mode(args, async_flags)
    if args.checkpoint_every and not (args.checkpoints or args.asynchronous):
        raise SettingError("--checkpoint-every needs --checkpoints DIR")
    if args.evaluate_every != EPOCH and not args.evaluate:
        raise SettingError("--evaluate-every needs --evaluate PATH")
    micro_batch_count = None if args.asynchronous else args.micro_batches
    if micro_batch_count is not None and micro_batch_count > args.batch_size:
        raise SettingError(
            f"--micro-batches is {micro_batch_count}, but --batch-size is {args.batch_size}: "
            "each micro-batch needs at least one record"
        )


def _check_mode(args: argparse.Namespace, async_flags: Sequence[str]) -> None:
    """Refuses flags of the other mode."""
    mode = "--sync" if args.asynchronous else "--async"
    names = ["--micro-batches", "--scale-learning-rate"]
    if not args.asynchronous:
        names = ["--max-staleness", "--modulate", *async_flags]
    for name in names:
        if getattr(args, name[2:].replace("-", "_")) not in (None, False):
            raise SettingError(f"{name} is for {mode}: remove it, or add {mode}")


def micro_batches(args: argparse.Namespace, trainers: int = 1) -> int:
    """Returns the number of micro-batches in a step.

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
    """Returns the steps between checkpoints, or 0 to save none."""
    if not (args.checkpoints or args.asynchronous):
        return 0
    return int(args.checkpoint_every or CHECKPOINT_STEPS)


def evaluation_steps(args: argparse.Namespace, shape: Mapping[str, Any]) -> int:
    """Returns the steps between evaluations, or 0 to evaluate only the final model.

    An epoch is counted in batches of --batch-size, even if --scale-learning-rate changes their size.

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
