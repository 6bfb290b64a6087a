"""The objects of a submitted job: a ConfigMap with the model's files, and the Job. Pure.

The ConfigMap's name contains a hash of the files, so that submitting a changed file does not change
the code of a running job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edl.master.protocol import Json

MODEL_FOLDER = "/etc/edl/model"
CONTAINER = "trainer"
MAX_BYTES = 1 << 20
"""Limit of the API server for a ConfigMap (core/v1, `MaxSecretSize`)."""
_GRACE_S = 30
_RETRIES = 6
_PREFIX = "edl.training/"


@dataclass(frozen=True)
class Claim:
    """A PersistentVolumeClaim and its mount path in trainers."""

    name: str
    path: str
    read_only: bool = False


@dataclass(frozen=True)
class JobSpec:
    """The checked settings of a Job."""

    name: str
    image: str
    files: Mapping[str, str]
    """Name -> text, the model file first."""
    arguments: Sequence[str]
    """Arguments after `edl train MODEL`."""
    min_trainers: int
    max_trainers: int
    cpu: str
    cpu_millis: int
    memory: str
    namespace: str = ""
    servers: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Further annotations: name without `edl.training/` -> value."""
    claims: Sequence[Claim] = ()


def config_map(spec: JobSpec) -> Json:
    """Returns a core/v1 ConfigMap with the model's files."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(spec, config_map_name(spec)),
        "immutable": True,
        "data": dict(spec.files),
    }


def config_map_name(spec: JobSpec) -> str:
    """Returns `<job>-model-<hash of the files>`."""
    digest = hashlib.sha256()
    for name, text in sorted(spec.files.items()):
        digest.update(f"{name}\0{text}\0".encode())
    return f"{spec.name}-model-{digest.hexdigest()[:8]}"


def job(spec: JobSpec) -> Json:
    """Returns a batch/v1 Job with EDL's annotations."""
    annotations = {
        "min-trainers": str(spec.min_trainers),
        "max-trainers": str(spec.max_trainers),
        "master": "true",
        **({"parameter-servers": str(spec.servers)} if spec.servers else {}),
        **spec.annotations,
    }
    metadata = _metadata(spec, spec.name)
    metadata["annotations"] = {_PREFIX + name: value for name, value in annotations.items()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": _RETRIES, "template": {"spec": _pod(spec)}},
    }


def _metadata(spec: JobSpec, name: str) -> Json:
    return {"name": name, **({"namespace": spec.namespace} if spec.namespace else {})}


def _pod(spec: JobSpec) -> Json:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_S,
        "containers": [_container(spec)],
        "volumes": [
            {"name": "model", "configMap": {"name": config_map_name(spec)}},
            *(
                {"name": _volume(number), "persistentVolumeClaim": {"claimName": claim.name}}
                for number, claim in enumerate(spec.claims)
            ),
        ],
    }


def _container(spec: JobSpec) -> Json:
    model = next(iter(spec.files))
    threads = str(max(1, spec.cpu_millis // 1000))
    return {
        "name": CONTAINER,
        "image": spec.image,
        "command": ["edl", "train", f"{MODEL_FOLDER}/{model}", *map(_escaped, spec.arguments)],
        # without it, numeric libraries start a thread for each core of the whole node
        "env": [{"name": "OMP_NUM_THREADS", "value": threads}],
        "resources": {
            "requests": {"cpu": spec.cpu, "memory": spec.memory},
            "limits": {"memory": spec.memory},
        },
        "volumeMounts": [
            {"name": "model", "mountPath": MODEL_FOLDER, "readOnly": True},
            *(
                {
                    "name": _volume(number),
                    "mountPath": claim.path,
                    **({"readOnly": True} if claim.read_only else {}),
                }
                for number, claim in enumerate(spec.claims)
            ),
        ],
    }


def _escaped(word: str) -> str:
    """Escapes `$(NAME)`, which Kubernetes would replace by the value of a variable."""
    return word.replace("$(", "$$(")


def _volume(number: int) -> str:
    return f"claim-{number}"
