"""Converts PaddlePaddle EDL's jobs (`paddlepaddle.org/v1`) and `paddlecloud submit` commands. Pure.

Sources: PaddlePaddle/edl `pkg/resource/training_job.go` and `pkg/jobparser.go` of its last Go
release, PaddlePaddle/cloud `go/paddlecloud/submit.go`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from edl import nearest
from edl.convert.fields import Fields, Notes, whole_number, without_empty
from edl.convert.training_job import Draft, metadata
from edl.errors import SettingError
from edl.submit import checks, quantity

_IMAGE = "paddlepaddle/paddlecloud-job"
_GPU, _OLD_GPU = "nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu"
_PORT, _PORTS = 7164, 1
_MIN_MASTER_MIB = 64
"""The least memory that EDL's admission accepts for a master."""
_SERVERS = (
    "EDL's own parameter servers take the place of the pserver pods, and the program uses them through "
    "edl.servers or `edl train --async`; Paddle's own client of the old pservers finds none"
)
_NO_ETCD = "ignored: EDL's master is a sidecar of a trainer, and needs no etcd"
_NO_MASTER = "ignored: the job has neither fault_tolerant nor parameter servers, and so no master"
_FROM_COMMAND = {
    "jobname": "",
    "parallelism": "1",
    "cpu": "1",
    "gpu": "0",
    "memory": "1Gi",
    "pservers": "",
    "pscpu": "1",
    "psmemory": "1Gi",
    "entry": "",
    "topology": "",
    "passes": "1",
    "image": _IMAGE,
    "registry": "",
    "min_instance": "1",
    "max_instance": "1",
    "faulttolerant": "false",
}
"""Flags of `paddlecloud submit`, with their defaults."""
_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")
_BOOLEANS = {"faulttolerant": dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)}
"""Boolean flag -> text -> value; Go's `strconv.ParseBool` accepts the same texts."""


def convert(fields: Fields, notes: Notes) -> Draft:
    """Converts a TrainingJob of `paddlepaddle.org/v1`.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    own_metadata = metadata(fields)
    spec = fields.sub("spec")
    trainer, pserver, master = (spec.sub(role) for role in ("trainer", "pserver", "master"))
    fault_tolerant = spec.flag("fault_tolerant")
    least = trainer.number("min-instance", 1, 1) or 1
    most = trainer.number("max-instance", least, 1) or least
    if least < most and not fault_tolerant:
        raise SettingError(
            f"{trainer.at('max-instance')} is greater than min-instance, and fault_tolerant is false: "
            "write spec.fault_tolerant: true, or the same number twice"
        )
    resources = _resources(trainer.sub("resources"))
    servers, server_count = _servers(pserver, notes)
    passes = _passes(spec, trainer)
    values = {
        "job": str(own_metadata["name"]),
        "entry": trainer.text("entrypoint"),
        "workspace": trainer.text("workspace"),
        "topology": "",
        "passes": passes or 1,
        "servers": server_count,
        "least": least,
        "port": spec.number("port", _PORT, 1) or _PORT,
        "ports": spec.number("ports_num", _PORTS) or 0,
        "sparse_ports": spec.number("ports_num_for_sparse", _PORTS) or 0,
    }
    trainer.note("etcd-endpoint", "ignored: trainers find each other through EDL's master")
    has_master = fault_tolerant or servers is not None
    master_amounts = _master_amounts(master, has_master=has_master)
    pod = {
        "restartPolicy": "Never",
        "containers": [_container(spec.text("image", _IMAGE), values, resources, spec)],
        "volumes": spec.raw("volumes", list),
        "imagePullSecrets": spec.raw("imagePullSecrets", list),
        "nodeSelector": spec.raw("NodeSelector", dict) or spec.raw("nodeSelector", dict),
        "hostNetwork": _host_network(spec, has_master=has_master),
    }
    for part in (trainer, pserver, master, spec):
        part.note("replicaSpec", "ignored: the original wrote it itself")
        part.check_rest()
    fields.raw("status")
    return Draft(
        own_metadata,
        {"spec": without_empty(pod)},
        least,
        most,
        trainer.at("min-instance"),
        servers=servers,
        has_master=has_master,
        master_amounts=master_amounts,
        epochs=passes,
        environment=("paddle",),
        spec={"backoffLimit": _failures(least, fault_tolerant=fault_tolerant)},
    )


def from_command(text: str, notes: Notes) -> Draft:
    """Converts a command line `paddlecloud submit -jobname ... PACKAGE`.

    Raises:
        SettingError: A flag is unknown or has an invalid value.
    """
    try:
        words = shlex.split(text, comments=True)[2:]
    except ValueError as error:
        raise SettingError(f"the command line cannot be read: {error}") from error
    values, package = dict(_FROM_COMMAND), ""
    index = 0
    while index < len(words):
        name, equals, value = words[index].lstrip("-").partition("=")
        if not words[index].startswith("-"):
            package, index = words[index], index + 1
            continue
        if name not in values:
            advice = nearest.advice(name, values)
            raise SettingError(f"-{name[:40]} is not a flag of paddlecloud submit{advice}")
        if not equals and name in _BOOLEANS:
            value = "true"  # as in Go, a boolean flag takes a value only after =
        elif not equals:
            index += 1
            value = words[index] if index < len(words) else ""
        values[name] = value
        index += 1
    return _of_flags(values, package, notes)


def _of_flags(values: Mapping[str, str], package: str, notes: Notes) -> Draft:
    numbers = {
        name: whole_number(f"-{name}", values[name] or values["parallelism"], least)
        for name, least in (
            *(("parallelism", 1), ("gpu", 0), ("pservers", 0), ("passes", 1)),
            *(("min_instance", 1), ("max_instance", 1)),
        )
    }
    fault_tolerant = _BOOLEANS["faulttolerant"].get(values["faulttolerant"])
    if fault_tolerant is None:
        raise SettingError(
            f"-faulttolerant is {values['faulttolerant']!r:.40}: write -faulttolerant, or =false"
        )
    least, most = numbers["min_instance"], numbers["max_instance"]
    if not fault_tolerant or most == 1:
        least = most = numbers["parallelism"]
    flags = {"cpu": values["cpu"], "memory": values["memory"]}
    quantity.cpu_millis("-cpu", values["cpu"])
    quantity.check_memory("-memory", values["memory"])
    if numbers["gpu"]:
        flags[_GPU] = str(numbers["gpu"])
    servers = None
    if numbers["pservers"]:
        quantity.cpu_millis("-pscpu", values["pscpu"])
        quantity.check_memory("-psmemory", values["psmemory"], quantity.MIN_SERVER_MIB)
        servers = {
            "replicas": numbers["pservers"],
            "cpu": values["pscpu"],
            "memory": values["psmemory"],
        }
        notes.losses.append(f"-pservers: {_SERVERS}")
    name = checks.check_label("-jobname", values["jobname"])
    container_values = {
        "job": name,
        "entry": values["entry"],
        "workspace": package,
        "topology": values["topology"],
        "passes": numbers["passes"],
        "servers": numbers["pservers"],
        "least": least,
        "port": _PORT,
        "ports": _PORTS,
        "sparse_ports": _PORTS,
    }
    container = _container(values["image"], container_values, {"requests": flags}, None)
    secrets = [{"name": values["registry"]}] if values["registry"] else None
    pod = {"restartPolicy": "Never", "containers": [container], "imagePullSecrets": secrets}
    has_master = fault_tolerant or servers is not None
    return Draft(
        {"name": name},
        {"spec": without_empty(pod)},
        least=least,
        most=most,
        at_bounds="-min_instance",
        servers=servers,
        has_master=has_master,
        epochs=numbers["passes"],
        environment=("paddle",),
        spec={"backoffLimit": _failures(least, fault_tolerant=fault_tolerant)},
    )


def _failures(least: int, *, fault_tolerant: bool) -> int:
    """Returns how many trainers may fail, which is the same as in the original system.

    A fault-tolerant job may lose as many trainers as it starts with, other jobs none.
    """
    return least if fault_tolerant else 0


def _passes(spec: Fields, trainer: Fields) -> int | None:
    """Returns `spec.passes`, or else `spec.trainer.passes`, which the original system ignored."""
    own = trainer.number("passes", None, 1)
    return spec.number("passes", own, 1)


def _servers(pserver: Fields, notes: Notes) -> tuple[dict[str, Any] | None, int]:
    count = pserver.number("min-instance", 0) or 0
    most = pserver.number("max-instance", count) or 0
    resources = _resources(pserver.sub("resources"))
    if not count:
        return None, 0
    if most > count:
        notes.hints.append(f"{pserver.at('max-instance')}: min-instance counts, as it always did")
    notes.losses.append(f"{pserver.at()}: {_SERVERS}")
    amounts = resources.get("requests") or resources.get("limits") or {}
    chosen = {name: amounts.get(name) for name in ("cpu", "memory")}
    return {"replicas": count, **without_empty(chosen)}, count


def _master_amounts(master: Fields, *, has_master: bool) -> dict[str, str]:
    """Returns the master's CPU and memory: its requests in the file, or its limits if it has no requests."""
    master.note("etcd-endpoint", _NO_ETCD)
    if not has_master:
        master.note("resources", _NO_MASTER)
        return {}
    resources = _resources(master.sub("resources"))
    amounts = resources.get("requests") or resources.get("limits") or {}
    chosen = {name: amounts[name] for name in ("cpu", "memory") if name in amounts}
    if "memory" in chosen:
        at = master.sub("resources").at()
        quantity.check_memory(at, chosen["memory"], _MIN_MASTER_MIB)
    return chosen


def _host_network(spec: Fields, *, has_master: bool) -> bool | None:
    names = ("hostNetwork", "host_network", "HostNetwork")
    chosen = [name for name in names if spec.flag(name)]
    if not chosen or not has_master:
        return True if chosen else None
    for name in chosen:
        spec.lose(
            name,
            "ignored: two masters on one node would collide, so EDL refuses it for jobs with one",
        )
    return None


def _resources(fields: Fields) -> dict[str, Any]:
    """Returns requests and limits, with GPUs under their current resource name.

    Raises:
        SettingError: An amount is invalid, such as `cpu: 250Mi`.
    """
    resources: dict[str, Any] = {}
    for part in ("requests", "limits"):
        own = fields.sub(part)
        amounts = {}
        for name in ("cpu", "memory", _OLD_GPU, _GPU):
            text = own.text(name)
            if text:
                _check_amount(own.at(name), name, text)
                amounts[_GPU if name == _OLD_GPU else name] = text
        own.check_rest()
        if amounts:
            resources[part] = amounts
    fields.check_rest()
    gpus = resources.get("limits", {}).get(_GPU)
    if gpus and "requests" in resources:
        resources["requests"][_GPU] = gpus
    return resources


def _check_amount(at: str, name: str, text: str) -> None:
    if name == "cpu":
        quantity.cpu_millis(at, text)
    elif name == "memory":
        quantity.check_memory(at, text)
    elif not (text.isascii() and text.isdecimal()):
        raise SettingError(f"{at} is {text!r:.40}: write a whole number of GPUs")


def _container(
    image: str, values: Mapping[str, Any], resources: dict[str, Any], spec: Fields | None
) -> dict[str, Any]:
    """Returns the trainers' container with the variables of the original system."""
    amounts = resources.get("requests") or resources.get("limits") or {}
    gpus = int(amounts.get(_GPU, resources.get("limits", {}).get(_GPU, 0)))
    count = values["ports"] + values["sparse_ports"]
    environment = {
        "PADDLE_JOB_NAME": values["job"],
        "TRAINERS": values["least"],
        "PSERVERS": values["servers"],
        "ENTRY": values["entry"],
        "TOPOLOGY": values["topology"] or values["entry"],
        "TRAINER_PACKAGE": values["workspace"],
        "PADDLE_INIT_PORT": values["port"],
        "PADDLE_INIT_TRAINER_COUNT": gpus or _whole_cpus(amounts),
        "PADDLE_INIT_PORTS_NUM": values["ports"],
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": values["sparse_ports"],
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": values["least"],
        "PADDLE_INIT_NUM_PASSES": values["passes"],
        "PADDLE_INIT_USE_GPU": 1 if gpus else 0,
    }
    variables: list[dict[str, Any]] = [
        {"name": name, "value": str(value)} for name, value in environment.items()
    ]
    for name, path in (("NAMESPACE", "metadata.namespace"), ("POD_IP", "status.podIP")):
        variables.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    mounts = None
    if spec is not None:
        mounts = spec.raw("VolumeMounts", list) or spec.raw("volumeMounts", list)
    ports = [
        {"name": f"jobport-{values['port'] + i}", "containerPort": values["port"] + i}
        for i in range(min(count, 100))
    ]
    container = {
        "name": "trainer",
        "image": image,
        "command": ["sh", "-c", values["entry"]] if values["entry"] else None,
        "workingDir": values["workspace"] if str(values["workspace"]).startswith("/") else None,
        "env": variables,
        "ports": ports,
        "resources": resources,
        "volumeMounts": mounts,
    }
    return without_empty(container)


def _whole_cpus(amounts: Mapping[str, str]) -> int:
    """Returns the number of whole CPUs, at least 1; for less than one CPU the original wrote 0 threads."""
    return max(1, quantity.cpu_millis("cpu", amounts.get("cpu", "1")) // 1000)
