"""The elastic Job of a TrainingJob, and the changes that keep it up to date. Pure.

A TrainingJob adds no rules: its Job carries the annotations that users can also write on Jobs, and the
rest of EDL only sees the Job. See docs/decisions/0047.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

from kube.request import TRAININGJOBS
from policy.admission import unstructured
from policy.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_DATA,
    ANNOTATION_ENVIRONMENT,
    ANNOTATION_EPOCHS,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_CPU,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_MEMORY,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_PROCESSES,
    ANNOTATION_QUEUE,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_SERVER_TEMPLATE,
    ANNOTATION_SERVERS,
    ANNOTATION_SIZES,
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
    "processes": ANNOTATION_PROCESSES,
}
_OF_MASTER = {
    "data": ANNOTATION_DATA,
    "epochs": ANNOTATION_EPOCHS,
    "maxSteps": ANNOTATION_MASTER_STEPS,
    "heartbeatSeconds": ANNOTATION_MASTER_HEARTBEAT,
    "stuckSeconds": ANNOTATION_MASTER_STUCK,
    "tokenGeneration": ANNOTATION_TOKEN_GENERATION,
    "cpu": ANNOTATION_MASTER_CPU,
    "memory": ANNOTATION_MASTER_MEMORY,
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
    ANNOTATION_SIZES,
    ANNOTATION_ENVIRONMENT,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_SERVER_TEMPLATE,
)
_VOLUMES = ("volumes", "volumeMounts")
"""Fields of the spec that apply to the pods of all roles."""
_SPEC = ("suspend", "backoffLimit", "activeDeadlineSeconds")
"""Fields that a Job's spec also has, and that may change in an existing Job."""
_FIXED = ("podFailurePolicy",)
"""Fields that a Job's spec also has, and that cannot change in an existing Job."""
_DEFAULTS = {"suspend": False, "backoffLimit": 6}
"""Defaults that the API server writes into a Job."""


def job(training_job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the batch/v1 Job to create for a TrainingJob."""
    metadata, spec = training_job["metadata"], training_job["spec"]
    template = _trainer_template(spec)
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
            **{name: spec[name] for name in (*_SPEC, *_FIXED) if name in spec},
        },
    }


def annotations(spec: Mapping[str, Any]) -> dict[str, str]:
    """Returns the annotations of the Job, by name."""
    trainer = spec["trainer"]
    master: Mapping[str, Any] = unstructured.mapping(spec, "master")
    servers: Mapping[str, Any] = unstructured.mapping(spec, "parameterServers")
    texts = _texts(trainer, _OF_TRAINER) | _texts(servers, _OF_SERVERS)
    if has_master(spec):
        texts |= {ANNOTATION_MASTER: "true", **_texts(master, _OF_MASTER)}
        if "template" in master:
            texts[ANNOTATION_MASTER_TEMPLATE] = _template_text(master["template"], spec)
    if "template" in servers:
        texts[ANNOTATION_SERVER_TEMPLATE] = _template_text(servers["template"], spec)
    lists = {
        ANNOTATION_SIZES: trainer.get("sizes"),
        ANNOTATION_ENVIRONMENT: spec.get("environment"),
    }
    texts |= {name: ",".join(map(str, values)) for name, values in lists.items() if values}
    return texts


def has_master(spec: Mapping[str, Any]) -> bool:
    """Returns whether a TrainingJob has a master, which EDL's own parameter servers require."""
    master = unstructured.mapping(spec, "master")
    servers = unstructured.mapping(spec, "parameterServers")
    own_servers = bool(_containers(unstructured.mapping(servers, "template")))
    is_asked_for = "master" in spec and master.get("enabled") is not False
    return is_asked_for or (bool(servers) and not own_servers)


def _template_text(template: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Returns a role's template as annotation text; equal templates give equal texts."""
    return orjson.dumps(_with_volumes(template, spec), option=orjson.OPT_SORT_KEYS).decode()


def _trainer_template(spec: Mapping[str, Any]) -> dict[str, Any]:
    return _with_volumes(spec["trainer"]["template"], spec)


def _with_volumes(template: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a template with the job's volumes, mounted in each of its containers.

    If the template already has a volume of the same name, or a mount at the same path, that one is kept.
    """
    containers = _containers(template)
    volumes, mounts = (spec.get(name) or [] for name in _VOLUMES)
    if not containers or not (volumes or mounts):
        return dict(template)
    pod_spec = {**template["spec"], "containers": [_mounted(c, mounts) for c in containers]}
    pod_spec["volumes"] = _joined(pod_spec, "volumes", volumes, "name")
    return {**template, "spec": pod_spec}


def _mounted(container: Mapping[str, Any], mounts: list[Any]) -> dict[str, Any]:
    return {
        **container,
        "volumeMounts": _joined(container, "volumeMounts", mounts, "mountPath"),
    }


def _joined(fields: Mapping[str, Any], name: str, further: list[Any], key: str) -> list[Any]:
    """Returns a template's list of objects with further ones appended.

    Raises:
        TypeError: The field is not a list of objects.
    """
    present = fields.get(name) or []
    if not isinstance(present, list) or not all(isinstance(entry, Mapping) for entry in present):
        raise TypeError(f"{name} of a template is {present!r:.60}: write a list of objects")
    names = {entry.get(key) for entry in present}
    return [*present, *(entry for entry in further if entry.get(key) not in names)]


def _containers(template: Mapping[str, Any]) -> list[Any]:
    containers: list[Any] = unstructured.mapping(template, "spec").get("containers") or []  # type: ignore[assignment]
    return containers


def template_hash(spec: Mapping[str, Any]) -> str:
    """Returns 16 hexadecimal digits that identify the pod template."""
    text = orjson.dumps(_trainer_template(spec), option=orjson.OPT_SORT_KEYS)
    return sha256(text).hexdigest()[:16]


def changes(training_job: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the merge patch that brings a Job up to date with its TrainingJob; {} if nothing differs.

    Args:
        training_job: The TrainingJob.
        current: Its existing Job. The template is not compared, because a Job's template cannot change.
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
