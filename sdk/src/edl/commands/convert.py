"""`edl convert FILE`: converts a job file of another system to a TrainingJob."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edl.commands.documents import print_objects
from edl.convert.convert import convert
from edl.convert.yaml_file import read, read_stream
from edl.errors import SettingError, printable
from edl.jobs.flags import DONE, whole_number
from edl.jobs.progress_lines import format_count
from edl.submit import checks, kubectl

NAME = "convert"
HELP = (
    "convert a job file of PaddlePaddle, Volcano, Kubeflow or HyperPod to a TrainingJob: "
    "print it as JSON, or create it with --apply"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `edl convert`."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="a job file, or a command line of paddlecloud submit; - reads standard input",
    )
    count = whole_number(1, checks.MAX_TRAINERS)
    parser.add_argument(
        "--min", type=count, metavar="N", help="minimum number of trainers, overrides the file"
    )
    parser.add_argument(
        "--max", type=count, metavar="N", help="maximum number of trainers, overrides the file"
    )
    parser.add_argument(
        "--apply",
        action="store_true",
        help="create the TrainingJob with kubectl instead of printing JSON for kubectl apply -f FILE",
    )
    parser.add_argument(
        "--accept-losses",
        action="store_true",
        help="with --apply: create the job even if some fields lose their meaning",
    )


def run(args: argparse.Namespace) -> int:
    """Prints or creates the TrainingJob, and prints a line for each field without a counterpart.

    Raises:
        EdlError: The file is invalid, kubectl failed, or with --apply some fields would lose their
            meaning.
    """
    if args.accept_losses and not args.apply:
        raise SettingError("--accept-losses needs --apply: without it nothing is created")
    is_piped = str(args.file) == "-"
    name = "standard input" if is_piped else str(args.file)
    text = read_stream(sys.stdin.buffer, name) if is_piped else read(args.file)
    training_job, notes = convert(text, name, args.min, args.max)
    for line in notes.hints:
        print(f"note: {printable(line)}", file=sys.stderr)
    for line in notes.losses:
        print(f"lost: {printable(line)}", file=sys.stderr)
    if not args.apply:
        return print_objects(training_job)
    if notes.losses and not args.accept_losses:
        raise SettingError(
            f"nothing was created: {format_count(len(notes.losses), 'field')} would lose their meaning "
            "(see the lines above); to create it anyway, add --accept-losses"
        )
    kubectl.create_one(training_job)
    trainer = training_job["spec"]["trainer"]
    print(
        f"trainingjob {training_job['metadata']['name']} created with {trainer['min']} to "
        f"{trainer['max']} trainers"
    )
    return DONE
