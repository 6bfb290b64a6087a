"""`edl convert FILE`: a job file of another system as a TrainingJob."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edl.commands.documents import print_objects
from edl.convert.convert import convert
from edl.convert.yaml_file import read, read_stream
from edl.errors import SettingError, printable
from edl.jobs.flags import DONE, whole_number
from edl.submit import checks, kubectl

NAME = "convert"
HELP = (
    "print, as JSON for kubectl, or --apply, a job file of PaddlePaddle, Volcano, Kubeflow or HyperPod "
    "as a TrainingJob"
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
        "--min", type=count, metavar="N", help="minimum of trainers, in place of the file's"
    )
    parser.add_argument(
        "--max", type=count, metavar="N", help="maximum of trainers, in place of the file's"
    )
    parser.add_argument(
        "--apply",
        action="store_true",
        help="create the TrainingJob with kubectl instead of printing JSON for kubectl apply -f FILE",
    )
    parser.add_argument(
        "--accept-losses",
        action="store_true",
        help="with --apply: create it although the meaning of some fields is lost",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the object, and a line for each field that has no counterpart, or creates it.

    Raises:
        EdlError: The file is invalid, meaning would be lost in silence, or kubectl failed.
    """
    if args.accept_losses and not args.apply:
        raise SettingError("--accept-losses is for --apply: without it nothing is created")
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
            f"nothing was created: {len(notes.losses)} fields lose their meaning, see the lines above; "
            "--accept-losses creates it nevertheless"
        )
    kubectl.create_one(training_job)
    trainer = training_job["spec"]["trainer"]
    print(
        f"trainingjob {training_job['metadata']['name']} is created, with {trainer['min']} to "
        f"{trainer['max']} trainers"
    )
    return DONE
