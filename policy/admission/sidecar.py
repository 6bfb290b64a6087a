"""The master's sidecar: what admission adds to the pods of a job that requested a master.

The pod that hosts the master gets it as a native sidecar (an init container that is restarted
for as long as the pod lives: KEP-753); every trainer gets the address and the job's token. The
names of the accompanying objects are defined here too, for both webhook and reconciler.
Pure. Called by `policy.admission.mutation`, and by `reconciler` for the names.
"""

from collections.abc import Mapping

from policy import names, quantity
from policy.admission import environment, unstructured
from policy.admission.patch import Patch
from policy.cluster.snapshot import Job, Resources
from policy.names import (
    ANNOTATION_MASTER_CPU,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_MEMORY,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_SNAPSHOT,
    LABEL_JOB,
    LABEL_MASTER,
    MASTER_CONTAINER,
    MASTER_PORT,
)

CPU_REQUEST = "100m"
MEMORY_REQUEST = "128Mi"
REQUESTS: Resources = {
    "cpu": quantity.parse("cpu", CPU_REQUEST),
    "memory": quantity.parse("memory", MEMORY_REQUEST),
}
"""Requests of the sidecar, which its host needs in addition to those of a trainer."""

_CPU_LIMIT = "1"
"""One process whose interpreter uses one CPU at a time needs no more."""
_MEMORY_LIMIT = "512Mi"
"""A million tasks take less than 200 MB; the remainder is for their snapshot."""
_JOURNAL = "/var/lib/edl-master"
_JOURNAL_VOLUME = "edl-master"
_JOURNAL_LIMIT = "1Gi"
_ACCESS = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACCESS_VOLUME = "edl-master-access"
_TOKEN_LIFE_S = 3607
"""The API server's default for pods; the kubelet renews the token."""
USER = 65532
STRICT: Mapping[str, object] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": USER,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""core/v1 SecurityContext of containers that EDL adds or creates."""
_FLAGS = {
    ANNOTATION_MASTER_STEPS: "--max-steps",
    ANNOTATION_MASTER_HEARTBEAT: "--heartbeat-seconds",
    ANNOTATION_MASTER_STUCK: "--stuck-seconds",
}


def requests_of(job: Job) -> Resources:
    """Requests of the sidecar of a job, EDL's or the user's program."""
    return job.master_requests or REQUESTS


def object_name(job: str) -> str:
    """The name of Service, Secret, ConfigMap, Role and RoleBinding of a job's master."""
    return names.object_name(job, environment.MASTER_SUFFIX)


def former_object_name(job: str) -> str:
    """The name that these objects had before: Jobs that have objects of this name keep it."""
    return names.object_name(job, "-master")


def is_master_host(labels: Mapping[str, str]) -> bool:
    """Whether a pod is labelled to host its job's master."""
    return labels.get(LABEL_MASTER) == "true" and bool(labels.get(LABEL_JOB))


def has_sidecar(pod: Mapping[str, object]) -> bool:
    """Whether a pod has the sidecar."""
    return unstructured.has_name(
        unstructured.objects(unstructured.mapping(pod, "spec"), "initContainers"), MASTER_CONTAINER
    )


def add_master(patch: Patch, pod: Mapping[str, object], namespace: str, image: str) -> None:
    """Adds the sidecar and its volumes to a pod that has no sidecar yet.

    It comes before the user's init containers, so that none of them can delay the master.

    Args:
        patch: Receives the operations.
        pod: The pod as admission receives it, labelled to host the master.
        namespace: Namespace of the request.
        image: Image of the sidecar.
    """
    job = unstructured.labels(pod)[LABEL_JOB]
    annotations = unstructured.annotations(pod)
    snapshot = annotations.get(ANNOTATION_SNAPSHOT) or object_name(job)
    flags = [f"--snapshot-configmap={namespace}/{snapshot}", *_flags(annotations)]
    spec = unstructured.mapping(pod, "spec")
    container = _container(job, image, flags, _resources(annotations, spec))
    patch.push(("spec", "initContainers"), container, first=True)
    volumes = unstructured.objects(unstructured.mapping(pod, "spec"), "volumes")
    token_volume = environment.token_volume(environment.token_secret(job, annotations))
    for volume in (_journal_volume(), _access_volume(), token_volume):
        if not unstructured.has_name(volumes, str(volume["name"])):
            patch.push(("spec", "volumes"), volume)


def _flags(annotations: Mapping[str, str]) -> list[str]:
    """The Job's settings of its master; `job_spec.master_settings` has validated them."""
    return [f"{flag}={annotations[name]}" for name, flag in _FLAGS.items() if name in annotations]


def limits_cpu(spec: Mapping[str, object]) -> bool:
    """Whether every container of a PodSpec has a CPU limit.

    So it is where a ResourceQuota counts limits.cpu, which refuses pods with any container without
    one. Elsewhere EDL's own containers have none: it would slow them down for nothing.
    """
    containers = unstructured.objects(spec, "containers")
    init = unstructured.objects(spec, "initContainers")
    return bool(containers) and all(
        "cpu" in unstructured.mapping(unstructured.mapping(container, "resources"), "limits")
        for container in (*containers, *init)
    )


def _resources(annotations: Mapping[str, str], spec: Mapping[str, object]) -> dict[str, object]:
    """Requests and limits; `job_options.master_requests` has validated those of the Job."""
    cpu = annotations.get(ANNOTATION_MASTER_CPU, CPU_REQUEST)
    memory = annotations.get(ANNOTATION_MASTER_MEMORY, MEMORY_REQUEST)
    limits = {"memory": _larger("memory", memory, _MEMORY_LIMIT)}
    if limits_cpu(spec):
        limits["cpu"] = _larger("cpu", cpu, _CPU_LIMIT)
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}


def _larger(resource: str, *texts: str) -> str:
    return max(texts, key=lambda text: quantity.parse(resource, text))


def _container(
    job: str, image: str, flags: list[str], resources: dict[str, object]
) -> dict[str, object]:
    """core/v1 Container of the master, with the same restrictions as EDL's own servers."""
    health = {"path": "/healthz", "port": MASTER_PORT}
    return {
        "name": MASTER_CONTAINER,
        "image": image,
        "restartPolicy": "Always",
        "command": [
            *("python", "-m", "master"),
            *("--listen", f":{MASTER_PORT}"),
            *("--journal", _JOURNAL),
            *flags,
        ],
        "env": environment.of_server(job),
        "ports": [{"name": "edl-master", "containerPort": MASTER_PORT, "protocol": "TCP"}],
        "resources": resources,
        "startupProbe": {"httpGet": health, "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {"httpGet": health, "periodSeconds": 10, "timeoutSeconds": 3},
        "securityContext": dict(STRICT),
        "volumeMounts": [
            {"name": _JOURNAL_VOLUME, "mountPath": _JOURNAL},
            {"name": _ACCESS_VOLUME, "mountPath": _ACCESS, "readOnly": True},
            environment.token_mount(),
        ],
    }


def _journal_volume() -> dict[str, object]:
    return {"name": _JOURNAL_VOLUME, "emptyDir": {"sizeLimit": _JOURNAL_LIMIT}}


def _access_volume() -> dict[str, object]:
    """The volume that the ServiceAccount admission plugin mounts, for the sidecar alone.

    It lets the sidecar reach the API server where the user's containers may not.
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
