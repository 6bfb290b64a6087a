"""`edl submit model.py --name J --image I ...`: runs the training of `edl train` as a Job on the cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from edl.commands.documents import print_objects
from edl.errors import SettingError
from edl.jobs import training_flags
from edl.jobs.flags import DONE, whole_number
from edl.model import static_check
from edl.submit import checks, kubectl, manifest, quantity

NAME = "submit"
HELP = "train a model file on the cluster: print the Job as JSON, or create it with --apply"
_SERVER_FLAGS = ("--servers", "--server-cpu", "--server-memory", "--server-claim")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `edl submit`."""
    training_flags.add_arguments(parser)
    _add_job_group(parser)
    _add_server_group(parser)


def _add_job_group(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the Job")
    group.add_argument("--name", required=True, help="name of the Job")
    group.add_argument(
        "--image", required=True, help="image with edl-sdk and the framework of the model"
    )
    count = whole_number(1, checks.MAX_TRAINERS)
    group.add_argument(
        "--min", type=count, required=True, metavar="N", help="minimum number of trainers"
    )
    group.add_argument(
        "--max", type=count, required=True, metavar="N", help="maximum number of trainers"
    )
    group.add_argument("--cpu", default="1", metavar="CPUS", help="CPUs per trainer (default 1)")
    group.add_argument(
        "--memory", default="2Gi", metavar="MEM", help="memory per trainer (default 2Gi)"
    )
    group.add_argument("--namespace", help="namespace (default: from kubectl's context)")
    group.add_argument("--queue", help="queue of the job, whose share of the cluster it uses")
    group.add_argument(
        "--weight",
        type=whole_number(1, checks.MAX_WEIGHT),
        metavar="N",
        help="weight of the job when capacity is shared",
    )
    group.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME:/path[:ro]",
        help="a PersistentVolumeClaim for data, checkpoints or exports; can be repeated",
    )
    group.add_argument(
        "--include",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a file that the model file imports; can be repeated",
    )
    group.add_argument(
        "--apply",
        action="store_true",
        help="create the Job with kubectl instead of printing JSON for kubectl apply -f FILE",
    )


def _add_server_group(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("parameter servers (--async)")
    group.add_argument(
        "--servers",
        type=whole_number(1, training_flags.MAX_SERVERS),
        metavar="N",
        help=f"number of servers (default {training_flags.SERVERS})",
    )
    group.add_argument("--server-cpu", metavar="CPUS", help="CPUs per server (default 500m)")
    group.add_argument("--server-memory", metavar="MEM", help="memory per server (default 1Gi)")
    group.add_argument(
        "--server-claim", metavar="NAME", help="PersistentVolumeClaim for checkpoints"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the objects, or creates them with kubectl.

    Raises:
        EdlError: A flag or file is invalid, or kubectl failed.
    """
    training_flags.check(args, async_flags=_SERVER_FLAGS)
    spec = _job_spec(args)
    job, files = manifest.job(spec), manifest.config_map(spec)
    if args.apply:
        if not kubectl.create(job, files):
            _warn_ordinary_job(spec.name)
            return DONE
        print(f"job {spec.name} submitted with {spec.min_trainers} to {spec.max_trainers} trainers")
        return DONE
    return print_objects(files, job)


def _warn_ordinary_job(name: str) -> None:
    """Warns that the Job was created but is not managed by EDL."""
    print(
        f"edl: job {name} was created as an ordinary Job that EDL does not manage: EDL is not "
        "installed, its webhook does not answer, or the policy excludes this namespace; delete the "
        "Job, and ask an admin to run `python -m admin doctor`",
        file=sys.stderr,
    )


def _job_spec(args: argparse.Namespace) -> manifest.JobSpec:
    checks.check_bounds(args.min, args.max)
    if not args.asynchronous:
        _check_trainers_have_work(args)
        args.micro_batches = training_flags.micro_batches(args, args.max)
    claims = checks.check_claims([checks.parse_claim(text) for text in args.claim])
    for flag in ("data", "evaluate", "checkpoints", "export"):
        checks.check_absolute(f"--{flag}", getattr(args, flag))
    if args.asynchronous and args.checkpoints:
        raise SettingError(
            "--checkpoints is for --sync on the cluster: with --async the parameter servers save "
            "checkpoints to --server-claim NAME"
        )
    for flag in ("checkpoints", "export"):
        checks.check_shared(f"--{flag}", getattr(args, flag), claims)
    millis = quantity.cpu_millis("--cpu", args.cpu)
    quantity.check_memory("--memory", args.memory)
    return manifest.JobSpec(
        name=checks.check_label("--name", args.name),
        image=checks.check_image(args.image),
        files=_texts(Path(args.model), args.include),
        arguments=args.flags.to_arguments(args),
        min_trainers=args.min,
        max_trainers=args.max,
        cpu=args.cpu,
        cpu_millis=millis,
        memory=args.memory,
        namespace=checks.check_label("--namespace", args.namespace) if args.namespace else "",
        servers=training_flags.servers(args),
        annotations=_annotations(args),
        claims=claims,
    )


def _check_trainers_have_work(args: argparse.Namespace) -> None:
    """Refuses a maximum above the number of micro-batches: further trainers would have no work."""
    if args.scale_learning_rate or args.max <= training_flags.micro_batches(args, args.max):
        return
    if args.micro_batches is None:
        raise SettingError(
            f"--max is {args.max}, but a step has only {args.batch_size} records (--batch-size), less "
            "than one per trainer: raise --batch-size or lower --max"
        )
    raise SettingError(
        f"--max is {args.max}, but a step has only {args.micro_batches} micro-batches, and further "
        "trainers would have no work: raise --micro-batches or lower --max"
    )


def _annotations(args: argparse.Namespace) -> Mapping[str, str]:
    """Checks the optional flags and returns annotations for those that are set."""
    values = {
        "queue": args.queue,
        "weight": args.weight,
        "parameter-server-cpu": args.server_cpu,
        "parameter-server-memory": args.server_memory,
        "checkpoint-claim": args.server_claim,
    }
    if args.server_cpu is not None:
        quantity.cpu_millis("--server-cpu", args.server_cpu)
    if args.server_memory is not None:
        quantity.check_memory("--server-memory", args.server_memory, quantity.MIN_SERVER_MIB)
    if args.server_claim is not None:
        checks.check_volume_claim("--server-claim", args.server_claim)
    if args.queue is not None:
        checks.check_queue(args.queue)
    return {name: str(value) for name, value in values.items() if value is not None}


def _texts(model: Path, included_files: list[Path]) -> dict[str, str]:
    """Returns name -> text of the model file, which comes first, and of the included files."""
    texts = {model.name: static_check.check(model)}
    for path in included_files:
        if path.name in texts:
            raise SettingError(f"--include {path}: another file is named {path.name}: rename one")
        texts[path.name] = static_check.read_source(path)
    checks.check_files(texts)
    return texts
