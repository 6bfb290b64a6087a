"""The master beside a trainer: what admission adds to the pods of a job that asked for one.

The pod that carries the master gets it as a native sidecar (an init container that is restarted
for as long as the pod lives: KEP-753); every trainer gets the address and the job's token. Names
of the objects that go with it come from here too, so that webhook and reconciler mean the same.
Pure. Who calls: `policy.mutation`, and `reconciler` for the names.
"""

import re
from collections.abc import Mapping
from hashlib import sha256

from policy import quantity
from policy.names import (
    ANNOTATION_KEPT,
    ANNOTATION_MASTER_ADDRESS,
    LABEL_JOB,
    LABEL_MASTER,
    LABEL_TRAINER_ID,
    MASTER_CONTAINER,
    MASTER_PORT,
    MASTER_TOKEN_KEY,
)
from policy.patch import Patch
from policy.snapshot import Resources

CPU_REQUEST = "100m"
MEMORY_REQUEST = "128Mi"
REQUESTS: Resources = {
    "cpu": quantity.parse("cpu", CPU_REQUEST),
    "memory": quantity.parse("memory", MEMORY_REQUEST),
}
"""What the pod that carries it needs more than the others."""

_MEMORY_LIMIT = "512Mi"
"""A million tasks take less than 200 MB; the rest is for their snapshot."""
_JOURNAL = "/var/lib/edl-master"
_JOURNAL_VOLUME = "edl-master"
_JOURNAL_LIMIT = "1Gi"
_ACCESS = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACCESS_VOLUME = "edl-master-access"
_TOKEN_LIFE_S = 3607
"""What the API server gives pods by default; the kubelet renews it."""
_USER = 65532
_LONGEST = 63
_SUFFIX = "-master"
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""RFC 1035: what a Service may be called."""


def object_name(job: str) -> str:
    """What Service, Secret, ConfigMap, Role and RoleBinding of a job's master are called.

    `<job>-master` where that can name a Service; else a name made of it and a part of its hash.
    """
    name = job + _SUFFIX
    if len(name) <= _LONGEST and _LABEL.fullmatch(name):
        return name
    digest = sha256(job.encode()).hexdigest()[:8]
    tail = f"-{digest}{_SUFFIX}"
    head = "edl-" + re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")
    return head[: _LONGEST - len(tail)].rstrip("-") + tail


def wanted(labels: Mapping[str, str]) -> bool:
    """Whether a pod is marked to carry its job's master."""
    return labels.get(LABEL_MASTER) == "true" and bool(labels.get(LABEL_JOB))


def carried(pod: Mapping[str, object]) -> bool:
    """Whether a pod has the sidecar."""
    return _named(_list(_spec(pod), "initContainers"), MASTER_CONTAINER)


def add_master(patch: Patch, pod: Mapping[str, object], namespace: str, image: str) -> None:
    """Adds the sidecar and its volumes; nothing where it is there already.

    It comes before the user's init containers: none of them may keep a job without its master.

    Args:
        patch: Takes the operations.
        pod: As admission sees it, marked to carry the master.
        namespace: Of the request.
        image: What the sidecar runs.
    """
    if carried(pod):
        return
    job = _texts(pod, "labels")[LABEL_JOB]
    patch.push(("spec", "initContainers"), _container(job, namespace, image), first=True)
    for volume in (_journal_volume(), _access_volume()):
        if not _named(_list(_spec(pod), "volumes"), str(volume["name"])):
            patch.push(("spec", "volumes"), volume)


def add_environment(patch: Patch, pod: Mapping[str, object]) -> list[str]:
    """Tells every container of a trainer where the master is and who it is itself.

    Variables that the user has set stay; an annotation on the pod names those that differ.

    Returns:
        One warning where some were kept.
    """
    labels, annotations = _texts(pod, "labels"), _texts(pod, "annotations")
    address, job = annotations.get(ANNOTATION_MASTER_ADDRESS), labels.get(LABEL_JOB)
    if not address or not job:
        return []
    variables: list[dict[str, object]] = [
        {"name": "EDL_MASTER", "value": address},
        *_own_variables(job),
    ]
    if number := labels.get(LABEL_TRAINER_ID):
        variables.append({"name": "EDL_TRAINER", "value": f"trainer-{number}"})
    kept: list[str] = []
    for place, container in enumerate(_list(_spec(pod), "containers")):
        path = ("spec", "containers", place, "env")
        kept += _add_variables(patch, path, container, variables)
    if not kept:
        return []
    names = ",".join(kept)
    patch.put(("metadata", "annotations", ANNOTATION_KEPT), names)
    return [f"kept as you set them, so they may miss the job's master: {names}"]


def _add_variables(
    patch: Patch,
    path: tuple[str | int, ...],
    container: Mapping[str, object],
    variables: list[dict[str, object]],
) -> list[str]:
    """Adds what is missing; which of those that are there differ, as container/NAME."""
    there = {str(entry.get("name")): entry for entry in _list(container, "env")}
    for variable in variables:
        if variable["name"] not in there:
            patch.push(path, variable)
    return [
        f"{container.get('name')}/{variable['name']}"
        for variable in variables
        if there.get(str(variable["name"]), variable) != variable
    ]


def _own_variables(job: str) -> list[dict[str, object]]:
    """What master and trainers are told alike."""
    secret = {"name": object_name(job), "key": MASTER_TOKEN_KEY}
    return [
        {"name": "EDL_JOB", "value": job},
        {"name": "EDL_TOKEN", "valueFrom": {"secretKeyRef": secret}},
    ]


def _container(job: str, namespace: str, image: str) -> dict[str, object]:
    """core/v1 Container of the master; as strict as EDL's own servers."""
    health = {"path": "/healthz", "port": MASTER_PORT}
    return {
        "name": MASTER_CONTAINER,
        "image": image,
        "restartPolicy": "Always",
        "command": [
            *("python", "-m", "master"),
            *("--listen", f"0.0.0.0:{MASTER_PORT}"),
            *("--journal", _JOURNAL),
            *("--snapshot-configmap", f"{namespace}/{object_name(job)}"),
        ],
        "env": _own_variables(job),
        "ports": [{"name": "edl-master", "containerPort": MASTER_PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": CPU_REQUEST, "memory": MEMORY_REQUEST},
            "limits": {"memory": _MEMORY_LIMIT},
        },
        "startupProbe": {"httpGet": health, "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {"httpGet": health, "periodSeconds": 10, "timeoutSeconds": 3},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": _JOURNAL_VOLUME, "mountPath": _JOURNAL},
            {"name": _ACCESS_VOLUME, "mountPath": _ACCESS, "readOnly": True},
        ],
    }


def _journal_volume() -> dict[str, object]:
    return {"name": _JOURNAL_VOLUME, "emptyDir": {"sizeLimit": _JOURNAL_LIMIT}}


def _access_volume() -> dict[str, object]:
    """What the ServiceAccount admission plugin mounts, for the sidecar alone.

    So the sidecar reaches the API server where the user's containers are kept from it.
    """
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources: list[dict[str, object]] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_LIFE_S}},
        {
            "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": _ACCESS_VOLUME, "projected": {"sources": sources}}


def _spec(pod: Mapping[str, object]) -> Mapping[str, object]:
    found = pod.get("spec")
    return found if isinstance(found, Mapping) else {}


def _list(owner: Mapping[str, object], field: str) -> list[Mapping[str, object]]:
    """A list of objects; anything else in it counts as an empty object, so that places hold."""
    found = owner.get(field)
    if not isinstance(found, list):
        return []
    return [entry if isinstance(entry, Mapping) else {} for entry in found]


def _named(entries: list[Mapping[str, object]], name: str) -> bool:
    return any(entry.get("name") == name for entry in entries)


def _texts(pod: Mapping[str, object], field: str) -> dict[str, str]:
    """Labels or annotations; what is no text in them is left out."""
    metadata = pod.get("metadata")
    found = metadata.get(field) if isinstance(metadata, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}
