"""The master beside a trainer: what admission adds to the pods of a job that asked for one.

The pod that carries the master gets it as a native sidecar (an init container that is restarted
for as long as the pod lives: KEP-753); every trainer gets the address and the job's token. Names
of the objects that go with it come from here too, so that webhook and reconciler mean the same.
Pure. Who calls: `policy.mutation`, and `reconciler` for the names.
"""

from collections.abc import Mapping

from policy import environment, names, quantity, reading
from policy.names import (
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STEPS,
    LABEL_JOB,
    LABEL_MASTER,
    MASTER_CONTAINER,
    MASTER_PORT,
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
USER = 65532
STRICT: Mapping[str, object] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": USER,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""core/v1 SecurityContext of containers that EDL adds or makes."""
_FLAGS = {
    ANNOTATION_MASTER_STEPS: "--max-steps",
    ANNOTATION_MASTER_HEARTBEAT: "--heartbeat-seconds",
}


def object_name(job: str) -> str:
    """What Service, Secret, ConfigMap, Role and RoleBinding of a job's master are called."""
    return names.object_name(job, environment.MASTER_SUFFIX)


def wanted(labels: Mapping[str, str]) -> bool:
    """Whether a pod is marked to carry its job's master."""
    return labels.get(LABEL_MASTER) == "true" and bool(labels.get(LABEL_JOB))


def carried(pod: Mapping[str, object]) -> bool:
    """Whether a pod has the sidecar."""
    return reading.named(reading.entries(reading.spec(pod), "initContainers"), MASTER_CONTAINER)


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
    job = reading.texts(pod, "labels")[LABEL_JOB]
    flags = _flags(reading.texts(pod, "annotations"))
    patch.push(("spec", "initContainers"), _container(job, namespace, image, flags), first=True)
    there = reading.entries(reading.spec(pod), "volumes")
    for volume in (_journal_volume(), _access_volume()):
        if not reading.named(there, str(volume["name"])):
            patch.push(("spec", "volumes"), volume)


def _flags(annotations: Mapping[str, str]) -> list[str]:
    """What the Job says about its master; `elastic.master_settings` has checked it."""
    return [f"{flag}={annotations[name]}" for name, flag in _FLAGS.items() if name in annotations]


def _container(job: str, namespace: str, image: str, flags: list[str]) -> dict[str, object]:
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
            *flags,
        ],
        "env": environment.of_job(job),
        "ports": [{"name": "edl-master", "containerPort": MASTER_PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": CPU_REQUEST, "memory": MEMORY_REQUEST},
            "limits": {"memory": _MEMORY_LIMIT},
        },
        "startupProbe": {"httpGet": health, "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {"httpGet": health, "periodSeconds": 10, "timeoutSeconds": 3},
        "securityContext": dict(STRICT),
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
