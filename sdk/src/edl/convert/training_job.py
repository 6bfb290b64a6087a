"""Builds EDL's TrainingJobs (`edl.training/v1`) from the fields of a job file. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edl.convert.fields import Fields, without_empty
from edl.errors import SettingError
from edl.submit import checks

API_VERSION, KIND = "edl.training/v1", "TrainingJob"
_STORE_PORT = 29400
_STORE = (
    "import time, torch.distributed as d; "
    f"s = d.TCPStore('0.0.0.0', {_STORE_PORT}, is_master=True, wait_for_workers=False); time.sleep(1e9)"
)
_STORE_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
_STORE_LIMITS = {"cpu": "1", "memory": "1Gi"}
"""The store's limits for the resources that the trainers limit; torch alone takes some hundred MiB."""
_METADATA = ("name", "namespace", "labels", "annotations")
_OF_SERVER = (
    "clusterName",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl stores a copy of the whole file."""
_WRONG_UNITS = {
    "cpu": (re.compile(r"[\d.]+(?:[KMGTPE]i|[kMGTPE])"), "CPUs, such as 2, 0.5 or 500m"),
    "memory": (re.compile(r"[\d.]+m"), "memory, such as 512Mi or 4Gi"),
}
_KUEUE = "kueue.x-k8s.io/"
_QUEUE = f"{_KUEUE}queue-name"
_NO_KUEUE = "ignored: Kueue would suspend the job without EDL's plan taking part"


@dataclass
class Draft:
    """A TrainingJob under construction."""

    metadata: dict[str, Any]
    template: dict[str, Any]
    """Pod template of the trainers."""
    least: int
    most: int
    at_bounds: str
    """Where the file has the minimum and maximum, for messages."""
    at_template: str = ""
    """Where the file has the template, for messages."""
    weight: int | None = None
    queue: str = ""
    servers: dict[str, Any] | None = None
    has_master: bool = False
    master_amounts: dict[str, str] = field(default_factory=dict)
    """CPU and memory of EDL's master."""
    epochs: int | None = None
    """Number of epochs that EDL's master leases; None keeps the master's default."""
    has_store: bool = False
    """Whether torchrun starts the trainers, so that the job needs a rendezvous store."""
    had_ranks: bool = False
    """Whether the other system gives RANK and WORLD_SIZE to each pod."""
    processes: int | None = None
    """Number of processes per trainer."""
    sizes: tuple[int, ...] = ()
    """Allowed numbers of trainers; empty if all are allowed."""
    environment: tuple[str, ...] = ()
    """Frameworks whose environment variables the job's pods get."""
    spec: dict[str, Any] = field(default_factory=dict)
    """Further fields of the spec."""


def metadata(fields: Fields) -> dict[str, Any]:
    """Returns an object's name, namespace, labels and annotations.

    Raises:
        SettingError: The name is missing or invalid.
    """
    own = fields.sub("metadata")
    name = own.text("name")
    if not name:
        own.note("generateName", "")
        raise SettingError(f"{own.at()} has no name: write metadata.name")
    checks.check_label(own.at("name"), name)
    values = {"name": name, "namespace": own.text("namespace")}
    for name_of_server in (*_OF_SERVER, "finalizers", "ownerReferences"):
        own.raw(name_of_server)
    texts = _texts(own)
    own.check_rest(_METADATA)
    return without_empty({**values, **texts})


def kueue_queue(fields: Fields) -> str:
    """Returns the Kueue queue in the job's label; "" if the job has no such label."""
    labels = fields.sub("metadata").sub("labels")
    return labels.text(_QUEUE)


def _texts(own: Fields) -> dict[str, Any]:
    """Returns the labels and annotations except Kueue's, which would make Kueue manage jobs and pods."""
    texts = {}
    for part in ("labels", "annotations"):
        fields, values = own.sub(part), own.raw(part, dict) or {}
        for name in map(str, values):
            if name == _QUEUE:
                fields.note(name, "it is the trainers' queue here, and no label")
            elif name.startswith(_KUEUE):
                fields.lose(name, _NO_KUEUE)
        texts[part] = {
            name: value
            for name, value in values.items()
            if name != _LAST_APPLIED and not str(name).startswith(_KUEUE)
        }
    return texts


def build(draft: Draft) -> dict[str, Any]:
    """Returns the TrainingJob.

    Raises:
        SettingError: The minimum exceeds the maximum, or the numbers of trainers are out of range.
    """
    if not 1 <= draft.least <= draft.most <= checks.MAX_TRAINERS:
        raise SettingError(
            f"{draft.at_bounds}: the minimum of trainers is {draft.least} and the maximum {draft.most}: "
            f"write 1 <= min <= max <= {checks.MAX_TRAINERS}"
        )
    trainer = {
        "min": draft.least,
        "max": draft.most,
        "weight": draft.weight,
        "queue": draft.queue,
        "processes": draft.processes,
        "sizes": list(draft.sizes),
    }
    spec: dict[str, Any] = {"trainer": {**without_empty(trainer), "template": draft.template}}
    if draft.servers is not None:
        spec["parameterServers"] = draft.servers
    if draft.has_master:
        epochs = {} if draft.epochs is None else {"epochs": draft.epochs}
        spec["master"] = {"enabled": True, **epochs, **draft.master_amounts}
    if draft.has_store:
        spec["master"] = {"template": _store(draft.template)}
    if draft.environment:
        spec["environment"] = list(draft.environment)
    spec |= draft.spec
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": draft.metadata, "spec": spec}


def _store(template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the pod template of torchrun's rendezvous store.

    The store runs in a trainer's pod and from the trainers' image. It copies the image pull policy and
    the security context from the trainers' container, and has limits for the resources that this container
    limits, because the namespace may require them (Pod Security, quotas).
    """
    trainer = template["spec"]["containers"][0]
    resources = trainer.get("resources")
    limited = resources.get("limits") if isinstance(resources, Mapping) else None
    limits = {name: most for name, most in _STORE_LIMITS.items() if name in (limited or ())}
    container = {
        "name": "store",
        "image": trainer.get("image", ""),
        "imagePullPolicy": trainer.get("imagePullPolicy"),
        "command": ["python", "-c", _STORE],
        "ports": [{"containerPort": _STORE_PORT}],
        "resources": without_empty({"requests": dict(_STORE_REQUESTS), "limits": limits}),
        "securityContext": trainer.get("securityContext"),
    }
    return {"spec": {"containers": [without_empty(container)]}}


def check_units(resources: Fields) -> None:
    """Refuses valid units that are certainly mistakes, such as `cpu: 250Mi` or `memory: 512m`.

    Raises:
        SettingError: An amount has such a unit; the message names the field and its line.
    """
    for part in ("requests", "limits"):
        amounts = resources.sub(part)
        for name, (wrong, right) in _WRONG_UNITS.items():
            text = str(amounts.raw(name))
            if wrong.fullmatch(text):
                raise SettingError(f"{amounts.at(name)} is {text!r:.40}: write {right}")


def clean_template(fields: Fields, name: str) -> dict[str, Any]:
    """Returns a pod template from a job file, without the fields that EDL sets itself.

    If the template has such fields, they are noted.

    Args:
        fields: The mapping that contains the template.
        name: The template's name in this mapping.

    Raises:
        SettingError: The template is missing, has no containers or a container without an image, or
            an amount has a wrong unit.
    """
    template = fields.raw(name, dict)
    pod = {} if template is None else template.get("spec")
    if not isinstance(pod, Mapping) or not pod.get("containers"):
        raise SettingError(f"{fields.at(name)} has no spec.containers: write a pod template")
    notes = fields.sub(name).sub("spec")
    own_metadata = {**(fields.sub(name).raw("metadata", dict) or {})}
    if own_metadata:
        own_metadata = without_empty({**own_metadata, **_texts(fields.sub(name).sub("metadata"))})
        template = without_empty({**template, "metadata": own_metadata})
    for container in notes.subs("containers"):
        if not container.text("image"):
            raise SettingError(f"{container.at()} has no image: write the program's image")
        check_units(container.sub("resources"))
    pod = dict(pod)
    if pod.pop("schedulerName", None):
        notes.note("schedulerName", "ignored: trainers use the scheduler that EDL's policy names")
    if pod.pop("priorityClassName", None):
        notes.note("priorityClassName", "ignored: EDL gives trainers priority classes of its own")
    if pod.get("restartPolicy") not in (None, "Never", "OnFailure"):
        notes.note("restartPolicy", "Never: EDL replaces trainers that end")
        pod["restartPolicy"] = "Never"
    return {**template, "spec": pod}
