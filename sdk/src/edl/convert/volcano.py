"""Jobs of Volcano (`batch.volcano.sh/v1alpha1`). Pure.

Source: volcano-sh/apis `pkg/apis/batch/v1alpha1/job.go`.
"""

from __future__ import annotations

from typing import Any

from edl.convert.fields import Fields, Notes, without_empty
from edl.convert.training_job import Draft, clean_template, metadata
from edl.errors import SettingError

_SERVER_NAMES = ("ps", "pserver", "server", "parameter-server")
_TASK_FIELDS = ("name", "replicas", "minAvailable", "template")
_OTHER_TASK = "left out: an EDL job has one elastic role; EDL's master takes the place of launchers"


def convert(fields: Fields, notes: Notes) -> Draft:
    """A Volcano Job: its largest task becomes the trainers.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    own_metadata = metadata(fields)
    spec = fields.sub("spec")
    tasks = {task.text("name", f"task-{i}"): task for i, task in enumerate(spec.subs("tasks"))}
    if not tasks:
        raise SettingError(f"{spec.at('tasks')} is empty: write the task of the trainers")
    counts = {name: task.number("replicas", 1, 0) or 0 for name, task in tasks.items()}
    workers = [name for name in tasks if name not in _SERVER_NAMES]
    trainers = max(workers or tasks, key=lambda name: counts[name])
    others = sum(count for name, count in counts.items() if name != trainers)
    task = tasks[trainers]
    whole = spec.number("minAvailable")
    least = task.number("minAvailable")
    if least is None:
        least = counts[trainers] if whole is None else whole - others
    template = clean_template(task, "template")
    servers = None
    for name, other in tasks.items():
        if name == trainers:
            continue
        if name in _SERVER_NAMES and servers is None:
            servers = {"replicas": max(1, counts[name]), **_amounts(other)}
            notes.losses.append(f"{other.at()}: EDL's own parameter servers take its place")
        else:
            notes.losses.append(f"{other.at()}: {_OTHER_TASK}")
        other.raw("template")
    for each in tasks.values():
        _read_rest_of_task(each)
    return Draft(
        own_metadata,
        _with_volumes(template, spec),
        max(1, least),
        counts[trainers],
        task.at("replicas"),
        queue=spec.text("queue"),
        servers=servers,
        has_master=servers is not None,
        spec=_spec(spec, fields),
    )


def _amounts(task: Fields) -> dict[str, Any]:
    """CPU and memory of a task's first container."""
    template = task.raw("template", dict) or {}
    containers = (template.get("spec") or {}).get("containers") or [{}]
    resources = containers[0].get("resources") or {}
    amounts = resources.get("requests") or resources.get("limits") or {}
    return {name: str(amounts[name]) for name in ("cpu", "memory") if name in amounts}


def _read_rest_of_task(task: Fields) -> None:
    task.lose("policies", "left out: EDL replaces trainers that end, and counts failures")
    task.lose("dependsOn", "left out: a job's master and servers start before its trainers")
    task.note("maxRetry", "left out: spec.backoffLimit counts the failures of all trainers")
    task.note("topologyPolicy", "left out: EDL plans by node, not by NUMA node")
    task.lose("subGroupPolicy", "left out: EDL has no groups within a job")
    task.raw("partitionPolicy")
    task.check_rest(_TASK_FIELDS)


def _with_volumes(template: dict[str, Any], spec: Fields) -> dict[str, Any]:
    """The template with the job's volumes mounted in every container."""
    volumes, mounts = [], []
    for index, volume in enumerate(spec.subs("volumes")):
        path, claim = volume.text("mountPath"), volume.text("volumeClaimName")
        volume.lose("volumeClaim", "left out: create the PersistentVolumeClaim and name it")
        volume.check_rest()
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
    spec.note("schedulerName", "left out: trainers use the scheduler that EDL's policy names")
    spec.note("priorityClassName", "left out: EDL gives trainers priority classes of its own")
    spec.note("plugins", "left out: trainers find each other through EDL's master")
    spec.lose("policies", "left out: EDL replaces trainers that end, and counts failures")
    spec.note("runningEstimate", "left out: EDL does not plan by estimates of time")
    spec.note("minSuccess", "left out: the job ends when its master or one trainer says so")
    spec.lose("networkTopology", "left out: EDL knows no topology of the network")
    values = {
        "backoffLimit": spec.number("maxRetry"),
        "ttlSecondsAfterFinished": spec.number("ttlSecondsAfterFinished"),
    }
    spec.check_rest()
    fields.raw("status")
    return without_empty(values)
