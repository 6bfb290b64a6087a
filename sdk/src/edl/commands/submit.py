"""`edl submit model.py --name J --image I ...`: the same training as an elastic Job of the cluster."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from edl.commands import training, words
from edl.errors import SettingError
from edl.model import outline
from edl.submit import checks, kubectl, manifest, quantity, yamltext

NAME = "submit"
HELP = "print, or --apply, the Job that trains a model file on the cluster"
_MOST_TRAINERS = 10_000
_MOST_WEIGHT = 1000
_SERVERS = 2
_OF_SERVERS = ("--servers", "--server-cpu", "--server-memory", "--server-claim")


def describe(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    flags = training.describe(parser)
    _job(parser)
    _servers(parser)
    parser.set_defaults(flags=flags)


def _job(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the Job")
    group.add_argument("--name", required=True, help="of the Job")
    group.add_argument("--image", required=True, help="has edl-sdk and the model's framework in it")
    count = words.whole(1, _MOST_TRAINERS)
    group.add_argument("--min", type=count, required=True, metavar="N", help="trainers at least")
    group.add_argument("--max", type=count, required=True, metavar="N", help="trainers at most")
    group.add_argument("--cpu", default="1", metavar="CPUS", help="of each trainer (default 1)")
    group.add_argument("--memory", default="2Gi", metavar="MEM", help="of each (default 2Gi)")
    group.add_argument("--namespace", help="kubectl's own by default")
    group.add_argument("--queue", help="whose share of the cluster it counts in")
    group.add_argument(
        "--weight", type=words.whole(1, _MOST_WEIGHT), metavar="N", help="in sharing"
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
    group.add_argument("--apply", action="store_true", help="create it with kubectl, print nothing")


def _servers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("parameter servers (--async)")
    count = words.whole(1, checks.MOST_SERVERS)
    group.add_argument("--servers", type=count, metavar="N", help=f"default {_SERVERS}")
    group.add_argument("--server-cpu", metavar="CPUS", help="of each server (default 500m)")
    group.add_argument("--server-memory", metavar="MEM", help="of each server (default 1Gi)")
    group.add_argument(
        "--server-claim", metavar="NAME", help="a claim for the servers' checkpoints"
    )


def act(asked: argparse.Namespace) -> int:
    """Prints YAML, or has kubectl make the objects.

    Raises:
        EdlError: Something cannot be as it was asked for.
    """
    training.check(asked, more=_OF_SERVERS)
    wanted = _wanted(asked)
    made, files = manifest.job(wanted), manifest.config_map(wanted)
    if asked.apply:
        kubectl.create(made, files)
        print(f"job {wanted.name} is submitted, with {wanted.least} to {wanted.most} trainers")
        return words.DONE
    head = (
        "# to submit the job: kubectl apply -f FILE; to remove all of it: kubectl delete -f FILE\n"
    )
    print(head + yamltext.documents(files, made), end="")
    return words.DONE


def _wanted(asked: argparse.Namespace) -> manifest.Wanted:
    checks.bounds(asked.min, asked.max)
    if not asked.asynchronous:
        _check_parts(asked)
        asked.micro_batches = training.micro_batches(asked, asked.max)
    found = checks.claims([checks.claim(text) for text in asked.claim])
    for flag in ("data", "evaluate", "checkpoints", "export"):
        checks.absolute(f"--{flag}", getattr(asked, flag))
    if asked.asynchronous and asked.checkpoints:
        raise SettingError(
            "--checkpoints is for --sync on the cluster: with --async the parameter servers write "
            "them, into --server-claim NAME"
        )
    for flag in ("checkpoints", "export"):
        checks.shared(f"--{flag}", getattr(asked, flag), found)
    millis = quantity.cpu_millis("--cpu", asked.cpu)
    quantity.check_memory("--memory", asked.memory)
    return manifest.Wanted(
        name=checks.label("--name", asked.name),
        image=checks.image(asked.image),
        files=_texts(Path(asked.model), asked.include),
        words=asked.flags.words(asked),
        least=asked.min,
        most=asked.max,
        cpu=asked.cpu,
        cpu_millis=millis,
        memory=asked.memory,
        namespace=checks.label("--namespace", asked.namespace) if asked.namespace else "",
        servers=(asked.servers or _SERVERS) if asked.asynchronous else 0,
        annotations=_annotations(asked),
        claims=found,
    )


def _check_parts(asked: argparse.Namespace) -> None:
    """More trainers than parts of a step would find no work."""
    if asked.scale_learning_rate or asked.max <= training.micro_batches(asked, asked.max):
        return
    if asked.micro_batches is None:
        raise SettingError(
            f"--max is {asked.max}, but a step has {asked.batch_size} records (--batch-size), which "
            "is less than one for each trainer: raise --batch-size or lower --max"
        )
    raise SettingError(
        f"--max is {asked.max}, but a step has {asked.micro_batches} parts (--micro-batches), and "
        "trainers beyond that find no work: raise it or lower --max"
    )


def _annotations(asked: argparse.Namespace) -> Mapping[str, str]:
    """More of them, for what was given."""
    found = {
        "queue": asked.queue,
        "weight": asked.weight,
        "parameter-server-cpu": asked.server_cpu,
        "parameter-server-memory": asked.server_memory,
        "checkpoint-claim": asked.server_claim,
    }
    if asked.server_cpu:
        quantity.cpu_millis("--server-cpu", asked.server_cpu)
    if asked.server_memory:
        quantity.check_memory("--server-memory", asked.server_memory)
    if asked.server_claim:
        checks.volume_claim("--server-claim", asked.server_claim)
    if asked.queue is not None:
        checks.queue(asked.queue)
    return {name: str(value) for name, value in found.items() if value}


def _texts(model: Path, more: list[Path]) -> dict[str, str]:
    """Name -> text, the model's first."""
    found = {model.name: outline.check(model)}
    for path in more:
        if path.name in found:
            raise SettingError(f"--include {path}: there is a file {path.name} already: rename one")
        found[path.name] = outline.text(path)
    checks.files(found)
    return found
