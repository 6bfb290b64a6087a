"""The elastic Job of a TrainingJob, and the changes that bring it up to date. Pure.

A TrainingJob has no rules of its own: its Job has the annotations that users write on Jobs, and
everything else in EDL knows the Job alone. See docs/decisions/0047.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

from kube.request import TRAININGJOBS
from policy import unstructured
from policy.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_QUEUE,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_SERVERS,
    ANNOTATION_TEMPLATE_HASH,
    ANNOTATION_TOKEN_GENERATION,
    ANNOTATION_WEIGHT,
    LABEL_TRAINING_JOB,
    MANAGER,
)
from reconciler.manifests import owned

_OF_TRAINER = {
    "min": ANNOTATION_MIN,
    "max": ANNOTATION_MAX,
    "weight": ANNOTATION_WEIGHT,
    "queue": ANNOTATION_QUEUE,
}
_OF_MASTER = {
    "maxSteps": ANNOTATION_MASTER_STEPS,
    "heartbeatSeconds": ANNOTATION_MASTER_HEARTBEAT,
    "stuckSeconds": ANNOTATION_MASTER_STUCK,
    "tokenGeneration": ANNOTATION_TOKEN_GENERATION,
}
_OF_SERVERS = {
    "replicas": ANNOTATION_SERVERS,
    "cpu": ANNOTATION_SERVER_CPU,
    "memory": ANNOTATION_SERVER_MEMORY,
    "checkpointClaim": ANNOTATION_CLAIM,
}
_ANNOTATIONS = (
    *_OF_TRAINER.values(),
    ANNOTATION_MASTER,
    *_OF_MASTER.values(),
    *_OF_SERVERS.values(),
)
_SPEC = ("suspend", "backoffLimit", "activeDeadlineSeconds")
"""Fields of the spec that a Job has, too, and that may change."""
_DEFAULTS = {"suspend": False, "backoffLimit": 6}
"""What the API server writes into a Job where they are missing."""


def job(training_job: Mapping[str, Any]) -> dict[str, Any]:
    """The batch/v1 Job of a TrainingJob, to be created."""
    metadata, spec = training_job["metadata"], training_job["spec"]
    template = spec["trainer"]["template"]
    pod_spec = {"restartPolicy": "Never", **template["spec"]}
    labels = unstructured.mapping(metadata, "labels")
    return {
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {**labels, LABEL_TRAINING_JOB: metadata["name"]},
            "annotations": {**annotations(spec), ANNOTATION_TEMPLATE_HASH: template_hash(spec)},
            "ownerReferences": [
                owned.reference(TRAININGJOBS, metadata["name"], metadata["uid"], blocks=True)
            ],
        },
        "spec": {
            "managedBy": MANAGER,
            "parallelism": spec["trainer"]["min"],
            "template": {**template, "spec": pod_spec},
            **{name: spec[name] for name in _SPEC if name in spec},
        },
    }


def annotations(spec: Mapping[str, Any]) -> dict[str, str]:
    """The annotations of the Job, by name."""
    trainer = spec["trainer"]
    master = unstructured.mapping(spec, "master")
    servers = unstructured.mapping(spec, "parameterServers")
    has_master = bool(servers) or ("master" in spec and master.get("enabled") is not False)
    texts = _texts(trainer, _OF_TRAINER)
    if has_master:
        texts[ANNOTATION_MASTER] = "true"
        texts |= _texts(master, _OF_MASTER) | _texts(servers, _OF_SERVERS)
    return texts


def template_hash(spec: Mapping[str, Any]) -> str:
    """Identifies the pod template; 16 hexadecimal digits."""
    text = orjson.dumps(spec["trainer"]["template"], option=orjson.OPT_SORT_KEYS)
    return sha256(text).hexdigest()[:16]


def changes(training_job: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that gives a Job what its TrainingJob says by now; {} where it has it.

    Args:
        training_job: The TrainingJob.
        current: Its Job, as it is. The template is not compared: a Job's cannot change.
    """
    spec = training_job["spec"]
    expected = annotations(spec)
    present = unstructured.mapping(current["metadata"], "annotations")
    texts = {
        name: expected.get(name) for name in _ANNOTATIONS if present.get(name) != expected.get(name)
    }
    fields = {
        name: spec.get(name)
        for name in _SPEC
        if current["spec"].get(name, _DEFAULTS.get(name)) != spec.get(name, _DEFAULTS.get(name))
    }
    patch: dict[str, Any] = {}
    if texts:
        patch["metadata"] = {"annotations": texts}
    if fields:
        patch["spec"] = fields
    return patch


def _texts(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    return {names[field]: str(fields[field]) for field in names if field in fields}
