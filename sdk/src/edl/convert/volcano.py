"""Converts Volcano's jobs (`batch.volcano.sh/v1alpha1`). Pure.

Source: volcano-sh/apis `pkg/apis/batch/v1alpha1/job.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from edl.convert import torchrun
from edl.convert.fields import Fields, Notes, without_empty
from edl.convert.training_job import Draft, clean_template, metadata
from edl.errors import SettingError

_SERVER_NAMES = ("ps", "pserver", "server", "parameter-server")
_TASK_FIELDS = ("name", "replicas", "minAvailable", "template")
_OTHER_TASK = "ignored: an EDL job has one elastic role; EDL's master takes the place of launchers"
_TORCH = "pytorch"
_DEFAULT_QUEUE = "default"
_PLUGIN = (
    "ignored: its variables and files (VC_..., /etc/volcano, ssh keys, TF_CONFIG) do not exist here"
)


def convert(fields: Fields, notes: Notes) -> Draft:
    """Converts a Volcano Job: its largest task becomes the trainers.

    If the job uses the PyTorch plugin, the pods of the master's task become trainers, too.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    own_metadata = metadata(fields)
    spec = fields.sub("spec")
    tasks = _tasks(spec)
    master = _torch_master(spec.sub("plugins"))
    counts = {name: task.number("replicas", 1, 0) or 0 for name, task in tasks.items()}
    workers = [name for name in tasks if name not in _SERVER_NAMES]
    trainers = max(workers or tasks, key=lambda name: (counts[name], name != master))
    task = tasks[trainers]
    template = clean_template(task, "template")
    role = {trainers}
    if master is not None and master in tasks and master != trainers:
        role.add(master)
        _join_master(tasks[master], task, notes)
    others = {name: tasks[name] for name in tasks if name not in role}
    servers = _servers(others, counts if master is None else {}, notes)
    least = _least(spec, tasks, counts, role)
    for each in tasks.values():
        _read_rest_of_task(each)
    draft = Draft(
        own_metadata,
        _with_volumes(template, spec),
        least,
        sum(counts[name] for name in role),
        task.at("replicas"),
        at_template=task.at("template"),
        queue=_queue(spec),
        servers=servers,
        has_master=servers is not None,
        spec=_spec(spec, fields),
    )
    if master is None:
        return draft
    notes.hints.append(f"{spec.at('plugins', _TORCH)}: {torchrun.HINT}")
    processes = torchrun.automatic_processes(draft, spec.at("plugins", _TORCH), notes)
    return replace(
        draft,
        has_store=True,
        had_ranks=True,
        environment=("torch",),
        processes=processes,
    )


def _tasks(spec: Fields) -> dict[str, Fields]:
    tasks: dict[str, Fields] = {}
    for index, task in enumerate(spec.subs("tasks")):
        name = task.text("name", f"task-{index}")
        if name in tasks:
            raise SettingError(f"{task.at('name')} is {name!r:.80}, as of another task: rename it")
        tasks[name] = task
    if not tasks:
        raise SettingError(f"{spec.at('tasks')} is empty: write the task of the trainers")
    return tasks


def _torch_master(plugins: Fields) -> str | None:
    """Returns the name of the master's task if the job uses the PyTorch plugin, otherwise None."""
    master = None
    for name in plugins:
        if name == _TORCH:
            words = [str(word) for word in plugins.raw(name, list) or []]
            named = [word.partition("=")[2] for word in words if word.startswith("--master=")]
            master = named[-1] if named else "master"
        else:
            plugins.lose(name, _PLUGIN)
    return master


def _join_master(master: Fields, task: Fields, notes: Notes) -> None:
    at = master.at("template")
    is_same = master.raw("template", dict) == task.raw("template", dict)
    if is_same:
        notes.hints.append(f"{at}: its pods are trainers, as the others")
    else:
        notes.losses.append(
            f"{at}: ignored: its pods become trainers, which all have the same template"
        )


def _least(
    spec: Fields, tasks: Mapping[str, Fields], counts: Mapping[str, int], role: AbstractSet[str]
) -> int:
    """Returns the minimum number of trainers.

    If only the job has a minimum, the result is this minimum less the pods of the other tasks. Otherwise,
    it is the sum of the trainers' tasks' minimums; a task without a minimum counts with all its pods.
    """
    whole = spec.number("minAvailable")
    own = {name: tasks[name].number("minAvailable") for name in role}
    others = sum(count for name, count in counts.items() if name not in role)
    if whole is not None and not any(own.values()):
        return max(1, whole - others)
    return max(1, sum(own[name] or counts[name] for name in role))


def _queue(spec: Fields) -> str:
    """Returns the queue; "" for `default`, which Volcano sets in jobs without a queue."""
    queue = spec.text("queue")
    if queue == _DEFAULT_QUEUE:
        spec.note(
            "queue",
            "ignored: it is Volcano's default; EDL's policy has the default for jobs without a queue",
        )
        return ""
    return queue


def _servers(
    others: Mapping[str, Fields], counts: Mapping[str, int], notes: Notes
) -> dict[str, Any] | None:
    """Returns EDL's parameter servers, which replace the job's first task with a server's name.

    Every other task is noted as ignored.
    """
    servers = None
    for name, task in others.items():
        if name in _SERVER_NAMES and servers is None and counts.get(name):
            servers = {"replicas": counts[name], **_amounts(task)}
            notes.losses.append(f"{task.at()}: EDL's own parameter servers take its place")
        else:
            notes.losses.append(f"{task.at()}: {_OTHER_TASK}")
        for field in ("template", "minAvailable"):
            task.raw(field)
    return servers


def _amounts(task: Fields) -> dict[str, Any]:
    """Returns the CPU and memory of a task's first container."""
    template = task.raw("template", dict) or {}
    containers = (template.get("spec") or {}).get("containers") or [{}]
    resources = containers[0].get("resources") or {}
    amounts = resources.get("requests") or resources.get("limits") or {}
    return {name: str(amounts[name]) for name in ("cpu", "memory") if name in amounts}


def _read_rest_of_task(task: Fields) -> None:
    task.lose("policies", "ignored: EDL replaces trainers that end, and counts failures")
    task.lose("dependsOn", "ignored: a job's master and servers start before its trainers")
    task.note("maxRetry", "ignored: spec.backoffLimit counts the failures of all trainers")
    task.note("topologyPolicy", "ignored: EDL plans by node, not by NUMA node")
    task.lose("subGroupPolicy", "ignored: EDL has no groups within a job")
    task.lose("partitionPolicy", "ignored: EDL has no groups within a job")
    task.check_rest(_TASK_FIELDS)


def _with_volumes(template: dict[str, Any], spec: Fields) -> dict[str, Any]:
    """Returns the template with the job's volumes mounted in every container."""
    volumes, mounts = [], []
    for index, volume in enumerate(spec.subs("volumes")):
        path, claim = volume.text("mountPath"), volume.text("volumeClaimName")
        volume.lose("volumeClaim", "ignored: create the PersistentVolumeClaim and name it")
        volume.check_rest()
        if not path or not (claim or "volumeClaim" in volume):
            raise SettingError(f"{volume.at()} has not both: write mountPath and volumeClaimName")
        if claim:
            volumes.append(
                {"name": f"volume-{index}", "persistentVolumeClaim": {"claimName": claim}}
            )
            mounts.append({"name": f"volume-{index}", "mountPath": path})
    if not volumes:
        return template
    pod = dict(template["spec"])
    pod["volumes"] = [*(pod.get("volumes") or ()), *volumes]
    pod["containers"] = [
        {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts]}
        for container in pod["containers"]
    ]
    return {**template, "spec": pod}


def _spec(spec: Fields, fields: Fields) -> dict[str, Any]:
    spec.note("schedulerName", "ignored: trainers use the scheduler that EDL's policy names")
    spec.note("priorityClassName", "ignored: EDL gives trainers priority classes of its own")
    spec.lose("policies", "ignored: EDL replaces trainers that end, and counts failures")
    spec.note("runningEstimate", "ignored: EDL does not plan by estimates of time")
    spec.note("minSuccess", "ignored: the job ends when its master or one trainer says so")
    spec.lose("networkTopology", "ignored: EDL does not know the topology of the network")
    values = {
        "backoffLimit": spec.number("maxRetry"),
        "ttlSecondsAfterFinished": spec.number("ttlSecondsAfterFinished"),
    }
    spec.check_rest()
    fields.raw("status")
    return without_empty(values)
