"""The elastic Job of a TrainingJob, and the changes that bring it up to date. Pure.

A TrainingJob has no rules of its own: its Job has the annotations that users write on Jobs, and
everything else in EDL knows the Job alone. See docs/decisions/0047.
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
"""Fields of the spec that the pods of all roles get."""
_SPEC = ("suspend", "backoffLimit", "activeDeadlineSeconds")
"""Fields of the spec that a Job has, too, and that may change."""
_FIXED = ("podFailurePolicy",)
"""Fields that a Job has, too, and that cannot change there."""
_DEFAULTS = {"suspend": False, "backoffLimit": 6}
"""What the API server writes into a Job where they are missing."""


def job(training_job: Mapping[str, Any]) -> dict[str, Any]:
    """The batch/v1 Job of a TrainingJob, to be created."""
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
    """The annotations of the Job, by name."""
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
    """Whether a TrainingJob has a master: EDL's own parameter servers need one."""
    master = unstructured.mapping(spec, "master")
    servers = unstructured.mapping(spec, "parameterServers")
    own_servers = bool(_containers(unstructured.mapping(servers, "template")))
    is_asked_for = "master" in spec and master.get("enabled") is not False
    return is_asked_for or (bool(servers) and not own_servers)


def _template_text(template: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """A role's template as an annotation: the same text for the same template."""
    return orjson.dumps(_with_volumes(template, spec), option=orjson.OPT_SORT_KEYS).decode()


def _trainer_template(spec: Mapping[str, Any]) -> dict[str, Any]:
    return _with_volumes(spec["trainer"]["template"], spec)


def _with_volumes(template: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """A template with the job's volumes, mounted in each of its containers.

    What the template has itself of the same name, or at the same path, stays.
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
    """A template's list of objects with further ones.

    Raises:
        TypeError: It is not a list of objects.
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
    """Identifies the pod template; 16 hexadecimal digits."""
    text = orjson.dumps(_trainer_template(spec), option=orjson.OPT_SORT_KEYS)
    return sha256(text).hexdigest()[:16]


def changes(training_job: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that brings a Job up to date with its TrainingJob; {} where nothing differs.

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
