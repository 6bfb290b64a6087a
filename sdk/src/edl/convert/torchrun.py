"""Converts the parts of other systems' PyTorch jobs that matter when EDL runs torchrun. Pure.

Sources: kubeflow/training-operator `pkg/controller.v1/pytorch/envvar.go` and `elastic.go`, kubeflow/trainer
`pkg/runtime/framework/plugins/torch`, torch `distributed/run.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from edl.convert.fields import Fields, Notes
from edl.convert.training_job import Draft
from edl.errors import SettingError

HINT = (
    "start the trainers with torchrun: its PET_... variables are set, RANK and WORLD_SIZE are torchrun's; "
    "the store of the rendezvous runs beside one trainer, from the trainers' image"
)
_NO_RANKS = (
    "RANK and WORLD_SIZE are not set, which the operator gives to programs that it starts without torchrun: "
    "start this one with torchrun"
)
_OPERATORS_LAUNCHER = (
    "its command is hyperpodrun, which needs the operator of HyperPod: write torchrun"
)
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_FIXED = re.compile(
    r"--(nnodes|node[-_]rank|rdzv[-_](?:endpoint|id|backend)|master[-_](?:addr|port))(?:=|\s+)(\S+)"
)
_QUOTES = "'\";,&)]}"
_MAX_PROCESSES = 128
_MAX_SHOWN = 40


def processes(fields: Fields, name: str) -> int | None:
    """Returns the number of processes per pod.

    Returns None if the field is missing, or is `auto`, `gpu` or `cpu`, which depend on the machine.

    Raises:
        SettingError: The field is not a whole number from 1 to 128.
    """
    if fields.text(name) in ("auto", "cpu", "gpu"):
        return None
    number = fields.number(name, None, 1)
    if number is not None and number > _MAX_PROCESSES:
        raise SettingError(f"{fields.at(name)} is {number}: write at most {_MAX_PROCESSES}")
    return number


def automatic_processes(draft: Draft, at: str, notes: Notes) -> int | None:
    """Returns the number of processes for `auto`, which is also the default: one process per GPU.

    Returns None if the first container requests fewer than two or more than 128 GPUs.

    Args:
        draft: The job.
        at: Where the file has the number of processes, or could have it.
        notes: Receives a note with the number, or a note that it depends on the machine.
    """
    count = _gpus(draft.template)
    if 1 < count <= _MAX_PROCESSES:
        notes.hints.append(
            f"{at}: auto is {count} here, a process for each GPU: spec.trainer.processes"
        )
        return count
    if not count and _is_started_by_torchrun(_command(draft.template)):
        notes.hints.append(
            f"{at}: auto depends on the machine, and is 1 here: write spec.trainer.processes"
        )
    return None


def check_command(draft: Draft, notes: Notes) -> None:
    """Notes in what way the trainers' command would behave differently under EDL.

    Args:
        draft: The job, with its final bounds.
        notes: Receives the notes.
    """
    command = _command(draft.template)
    if re.search(r"\bhyperpodrun\b", command):
        notes.losses.append(f"{draft.at_template}: {_OPERATORS_LAUNCHER}")
    elif draft.had_ranks and not _is_started_by_torchrun(command):
        notes.losses.append(f"{draft.at_template}: {_NO_RANKS}")
    flags = [
        f"--{name}={value}"[:_MAX_SHOWN]
        for name, value in _flags(command)
        if not _is_right(name, value, draft)
    ]
    if flags:
        notes.losses.append(
            f"{draft.at_template}: its command has {', '.join(flags)}, which torchrun takes in place of "
            "EDL's PET_... variables: trainers would not find each other, or not be elastic: leave them out"
        )


def _flags(command: str) -> list[tuple[str, str]]:
    return [(name, value.strip(_QUOTES)) for name, value in _FIXED.findall(command)]


def _is_right(name: str, value: str, draft: Draft) -> bool:
    """Returns whether a torchrun flag agrees with EDL's PET_... variables."""
    if "PET_" in value:
        return True
    if name == "nnodes":
        counts = [f"{draft.least}:{draft.most}"]
        counts += [str(draft.least)] if draft.least == draft.most else []
        return value in counts
    return "backend" in name and value == "c10d"


def _is_started_by_torchrun(command: str) -> bool:
    return any(launcher in command for launcher in _LAUNCHERS)


def _container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    container: Mapping[str, Any] = template["spec"]["containers"][0]
    return container


def _command(template: Mapping[str, Any]) -> str:
    container = _container(template)
    words = [container.get(name) or [] for name in ("command", "args")]
    return " ".join(str(word) for part in words if isinstance(part, list) for word in part)


def _gpus(template: Mapping[str, Any]) -> int:
    """Returns the number of the first container's GPUs; 0 if it has none or the number is invalid."""
    resources = _container(template).get("resources")
    parts = resources.values() if isinstance(resources, Mapping) else ()
    amounts = [
        str(amount)
        for part in parts
        if isinstance(part, Mapping)
        for name, amount in part.items()
        if str(name).endswith("/gpu")
    ]
    return max((int(text) for text in amounts if text.isascii() and text.isdecimal()), default=0)
