"""`edl submit model.py --name J --image I ...`: the same training as an elastic Job of the cluster."""

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
HELP = "print, as JSON for kubectl, or --apply, the Job that trains a model file on the cluster"
_OF_SERVERS = ("--servers", "--server-cpu", "--server-memory", "--server-claim")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `edl submit`."""
    training_flags.add_arguments(parser)
    _add_job_group(parser)
    _add_server_group(parser)


def _add_job_group(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the Job")
    group.add_argument("--name", required=True, help="name of the Job")
    group.add_argument(
        "--image", required=True, help="image with edl-sdk and the model's framework"
    )
    count = whole_number(1, checks.MAX_TRAINERS)
    group.add_argument("--min", type=count, required=True, metavar="N", help="minimum of trainers")
    group.add_argument("--max", type=count, required=True, metavar="N", help="maximum of trainers")
    group.add_argument("--cpu", default="1", metavar="CPUS", help="CPUs of a trainer (default 1)")
    group.add_argument(
        "--memory", default="2Gi", metavar="MEM", help="memory of a trainer (default 2Gi)"
    )
    group.add_argument("--namespace", help="default: that of kubectl's context")
    group.add_argument("--queue", help="queue whose share of the cluster the job counts in")
    group.add_argument(
        "--weight", type=whole_number(1, checks.MAX_WEIGHT), metavar="N", help="weight in sharing"
    )
    group.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME:/path[:ro]",
        help="a PersistentVolumeClaim for data, checkpoints, exports; may be given more than once",
    )
    group.add_argument(
        "--include",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a file that the model file imports; may be given more than once",
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
        help=f"number (default {training_flags.SERVERS})",
    )
    group.add_argument("--server-cpu", metavar="CPUS", help="CPUs of a server (default 500m)")
    group.add_argument("--server-memory", metavar="MEM", help="memory of a server (default 1Gi)")
    group.add_argument(
        "--server-claim", metavar="NAME", help="PersistentVolumeClaim for checkpoints"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the objects, or creates them with kubectl.

    Raises:
        EdlError: A flag or file is invalid, or kubectl failed.
    """
    training_flags.check(args, async_flags=_OF_SERVERS)
    spec = _job_spec(args)
    job, files = manifest.job(spec), manifest.config_map(spec)
    if args.apply:
        if not kubectl.create(job, files):
            _warn_of_ordinary_job(spec.name)
            return DONE
        print(
            f"job {spec.name} is submitted, with {spec.min_trainers} to {spec.max_trainers} trainers"
        )
        return DONE
    return print_objects(files, job)


def _warn_of_ordinary_job(name: str) -> None:
    """Says what becomes of a Job that EDL has not seen; it is there, as with kubectl."""
    print(
        f"edl: job {name} is created as an ordinary Job, because no EDL has taken it: the cluster has "
        "none, its webhook is away, or the policy leaves this namespace out; delete the Job, and ask "
        "an admin for `python -m admin doctor`",
        file=sys.stderr,
    )


def _job_spec(args: argparse.Namespace) -> manifest.JobSpec:
    checks.check_bounds(args.min, args.max)
    if not args.asynchronous:
        _check_parts(args)
        args.micro_batches = training_flags.micro_batches(args, args.max)
    claims = checks.check_claims([checks.parse_claim(text) for text in args.claim])
    for flag in ("data", "evaluate", "checkpoints", "export"):
        checks.check_absolute(f"--{flag}", getattr(args, flag))
    if args.asynchronous and args.checkpoints:
        raise SettingError(
            "--checkpoints is for --sync on the cluster: with --async the parameter servers write "
            "them, into --server-claim NAME"
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


def _check_parts(args: argparse.Namespace) -> None:
    """Refuses more trainers than a step has parts: the others would have no work."""
    if args.scale_learning_rate or args.max <= training_flags.micro_batches(args, args.max):
        return
    if args.micro_batches is None:
        raise SettingError(
            f"--max is {args.max}, but a step has {args.batch_size} records (--batch-size), which "
            "is less than one for each trainer: raise --batch-size or lower --max"
        )
    raise SettingError(
        f"--max is {args.max}, but a step has {args.micro_batches} parts (--micro-batches), and "
        "trainers beyond that find no work: raise it or lower --max"
    )


def _annotations(args: argparse.Namespace) -> Mapping[str, str]:
    """Returns annotations for the optional flags that are set."""
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
    """Returns name -> text of all files, the model file first."""
    texts = {model.name: static_check.check(model)}
    for path in included_files:
        if path.name in texts:
            raise SettingError(f"--include {path}: there is a file {path.name} already: rename one")
        texts[path.name] = static_check.read_source(path)
    checks.check_files(texts)
    return texts
