"""The objects of a submitted job: a ConfigMap with the model's files, and the Job. Pure.

The ConfigMap's name holds a hash of the files: the code of a job that runs never changes, however
often its file is submitted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MODEL_FOLDER = "/etc/edl/model"
CONTAINER = "trainer"
MOST_BYTES = 1 << 20
"""What the API server takes in a ConfigMap (core/v1, `MaxSecretSize`)."""
_GRACE_S = 30
_RETRIES = 6
_PREFIX = "edl.training/"

Json = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """A PersistentVolumeClaim and where trainers find it."""

    name: str
    path: str
    read_only: bool = False


@dataclass(frozen=True)
class Wanted:
    """What was asked for, checked."""

    name: str
    image: str
    files: Mapping[str, str]
    """Name -> text; the model's is the first."""
    words: Sequence[str]
    """Of the command line, after `edl train MODEL`."""
    least: int
    most: int
    cpu: str
    cpu_millis: int
    memory: str
    namespace: str = ""
    servers: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    """More of them, by name without `edl.training/`."""
    claims: Sequence[Claim] = ()


def config_map(wanted: Wanted) -> Json:
    """core/v1 ConfigMap with the model's files."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(wanted, config_map_name(wanted)),
        "immutable": True,
        "data": dict(wanted.files),
    }


def config_map_name(wanted: Wanted) -> str:
    """`<job>-model-<hash of the files>`."""
    digest = hashlib.sha256()
    for name, text in sorted(wanted.files.items()):
        digest.update(f"{name}\0{text}\0".encode())
    return f"{wanted.name}-model-{digest.hexdigest()[:8]}"


def job(wanted: Wanted) -> Json:
    """batch/v1 Job with EDL's annotations."""
    annotations = {
        "min-trainers": str(wanted.least),
        "max-trainers": str(wanted.most),
        "master": "true",
        **({"parameter-servers": str(wanted.servers)} if wanted.servers else {}),
        **wanted.annotations,
    }
    metadata = _metadata(wanted, wanted.name)
    metadata["annotations"] = {_PREFIX + name: value for name, value in annotations.items()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": _RETRIES, "template": {"spec": _pod(wanted)}},
    }


def _metadata(wanted: Wanted, name: str) -> Json:
    return {"name": name, **({"namespace": wanted.namespace} if wanted.namespace else {})}


def _pod(wanted: Wanted) -> Json:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_S,
        "containers": [_container(wanted)],
        "volumes": [
            {"name": "model", "configMap": {"name": config_map_name(wanted)}},
            *(
                {"name": _volume(number), "persistentVolumeClaim": {"claimName": one.name}}
                for number, one in enumerate(wanted.claims)
            ),
        ],
    }


def _container(wanted: Wanted) -> Json:
    model = next(iter(wanted.files))
    threads = str(max(1, wanted.cpu_millis // 1000))
    return {
        "name": CONTAINER,
        "image": wanted.image,
        "command": ["edl", "train", f"{MODEL_FOLDER}/{model}", *map(_literal, wanted.words)],
        # without it, numeric libraries start a thread for each core of the whole node
        "env": [{"name": "OMP_NUM_THREADS", "value": threads}],
        "resources": {
            "requests": {"cpu": wanted.cpu, "memory": wanted.memory},
            "limits": {"memory": wanted.memory},
        },
        "volumeMounts": [
            {"name": "model", "mountPath": MODEL_FOLDER, "readOnly": True},
            *(
                {
                    "name": _volume(number),
                    "mountPath": one.path,
                    **({"readOnly": True} if one.read_only else {}),
                }
                for number, one in enumerate(wanted.claims)
            ),
        ],
    }


def _literal(word: str) -> str:
    """As Kubernetes must be told it, which puts variables in for `$(NAME)`."""
    return word.replace("$(", "$$(")


def _volume(number: int) -> str:
    return f"claim-{number}"
