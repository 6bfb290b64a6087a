"""The sidecar and the environment variables that admission adds to pods of a job with a master. Pure.

The pod that hosts the master gets it as a native sidecar (KEP-753: an init container that is restarted as long
as the pod lives). Every trainer gets the master's address and the job's token. The webhook and the reconciler
both use the names of the master's objects from here.
"""

from collections.abc import Mapping

from policy import names, quantity
from policy.admission.patch import Change, Path, Push, Put
from policy.admission.views import DEFAULT_GRACE_S, PodView
from policy.cluster.snapshot import Job, Resources
from policy.names import (
    ANNOTATION_DATA,
    ANNOTATION_EPOCHS,
    ANNOTATION_KEPT_ENVIRONMENT,
    ANNOTATION_MASTER_ADDRESS,
    ANNOTATION_MASTER_CPU,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_MEMORY,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_MAX,
    ANNOTATION_SERVER_ADDRESSES,
    ANNOTATION_SNAPSHOT,
    ANNOTATION_TOKEN_SECRET,
    EXCHANGE_PORT,
    LABEL_TRAINER_ID,
    MASTER_CONTAINER,
    MASTER_PORT,
    MASTER_TOKEN_KEY,
)

CPU_REQUEST = "100m"
MEMORY_REQUEST = "128Mi"
REQUESTS: Resources = {
    "cpu": quantity.parse("cpu", CPU_REQUEST),
    "memory": quantity.parse("memory", MEMORY_REQUEST),
}
"""Requests of the sidecar, which its host pod needs in addition to a trainer's requests."""

_CPU_LIMIT = "1"
"""CPU limit of the master, a single process whose interpreter uses one CPU at a time."""
_MEMORY_LIMIT = "512Mi"
"""Memory limit of the master: a million tasks take less than 200 MB, and their snapshot takes the rest."""
_SUFFIX = "-edl-master"
_JOURNAL = "/var/lib/edl-master"
_JOURNAL_VOLUME = "edl-master"
_JOURNAL_LIMIT = "1Gi"
_ACCESS = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACCESS_VOLUME = "edl-master-access"
_TOKEN_LIFE_S = 3607
"""Lifetime of the service account token, the API server's default for pods; the kubelet renews it."""
_TOKEN_VOLUME = "edl-token"  # noqa: S105 - name of a volume
_TOKEN_FOLDER = "/var/run/secrets/edl"  # noqa: S105 - path of a folder
_EXIT_S = 1
"""Seconds of a pod's grace period that remain for the process to exit."""
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
"""Annotation that admission has validated -> flag of the master."""
_OPTIONAL_VARIABLES = {
    "EDL_MAX_TRAINERS": ANNOTATION_MAX,
    "EDL_PARAMETER_SERVERS": ANNOTATION_SERVER_ADDRESSES,
    "EDL_DATA": ANNOTATION_DATA,
    "EDL_EPOCHS": ANNOTATION_EPOCHS,
}
"""Variables that a pod gets if it has the corresponding annotation."""
_GRACE = "EDL_GRACE_S"
Variable = dict[str, object]
"""core/v1 EnvVar."""


def requests_of(job: Job) -> Resources:
    """Returns the requests of a job's sidecar, which runs EDL's master or the user's program."""
    return job.master_requests or REQUESTS


def object_name(job: str) -> str:
    """Returns the name of the Service, Secret, ConfigMap, Role and RoleBinding for a job's master."""
    return names.object_name(job, _SUFFIX)


def former_object_name(job: str) -> str:
    """Returns the name of these objects in older releases; Jobs that have such objects keep them."""
    return names.object_name(job, "-master")


def server_variables(job: str) -> list[Variable]:
    """Returns the variables of EDL's own containers: the job's name, and the file with the job's token."""
    return [
        {"name": "EDL_JOB", "value": job},
        {"name": "EDL_TOKEN_FILE", "value": f"{_TOKEN_FOLDER}/{MASTER_TOKEN_KEY}"},
    ]


def token_volume(secret: str) -> dict[str, object]:
    """Returns the volume with the job's token, which only its owner and EDL's containers can read."""
    return {
        "name": _TOKEN_VOLUME,
        "secret": {
            "secretName": secret,
            "items": [{"key": MASTER_TOKEN_KEY, "path": MASTER_TOKEN_KEY}],
        },
    }


def token_mount() -> dict[str, object]:
    """Returns the mount of the token volume in EDL's containers."""
    return {"name": _TOKEN_VOLUME, "mountPath": _TOKEN_FOLDER, "readOnly": True}


def add_master(pod: PodView, namespace: str, image: str) -> list[Change]:
    """Adds the sidecar and its volumes to a pod without a sidecar.

    The sidecar comes before the user's init containers, so that none of them can delay the master.

    Args:
        pod: The pod, whose label says that it hosts the master.
        namespace: Namespace of the request.
        image: Image of the sidecar.
    """
    snapshot = pod.annotations.get(ANNOTATION_SNAPSHOT) or object_name(pod.job)
    flags = [f"--snapshot-configmap={namespace}/{snapshot}"]
    flags += [
        f"{flag}={pod.annotations[name]}"
        for name, flag in _FLAGS.items()
        if name in pod.annotations
    ]
    container = _container(pod.job, image, flags, _resources(pod))
    volumes = (
        {"name": _JOURNAL_VOLUME, "emptyDir": {"sizeLimit": _JOURNAL_LIMIT}},
        _access_volume(),
        token_volume(_token_secret(pod)),
    )
    return [
        Push(("spec", "initContainers"), container, first=True),
        *(
            Push(("spec", "volumes"), volume)
            for volume in volumes
            if volume["name"] not in pod.volumes
        ),
    ]


def add_variables(pod: PodView, grace_cap_s: int) -> tuple[list[Change], list[str]]:
    """Adds variables to every container of a pod with an annotation for its master's address.

    The variables are the addresses of master and parameter servers, the trainer's id, and the address at
    which other trainers reach it. Variables that the user has set are kept; an annotation on the pod lists
    the ones with other values.

    Args:
        pod: The pod.
        grace_cap_s: The cap on its terminationGracePeriodSeconds.

    Returns:
        The changes, and one warning if the user set a variable to another value.
    """
    if not pod.annotations.get(ANNOTATION_MASTER_ADDRESS) or not pod.job:
        return [], []
    variables = [*_grace(pod.grace_s, grace_cap_s), *_variables(pod)]
    changes: list[Change] = []
    user_set: list[str] = []
    for position, container in enumerate(pod.containers):
        existing = {str(entry.get("name")): entry for entry in container.env}
        path: Path = ("spec", "containers", position, "env")
        for variable in variables:
            name = str(variable["name"])
            if name not in existing:
                changes.append(Push(path, variable))
            elif name != _GRACE and existing[name] != variable:
                user_set.append(f"{container.name}/{name}")
    if not user_set:
        return changes, []
    kept = ",".join(user_set)
    changes.append(Put(("metadata", "annotations", ANNOTATION_KEPT_ENVIRONMENT), kept))
    return changes, [
        f"EDL keeps your values of these variables, so the program may not find the job's master: {kept}"
    ]


def _variables(pod: PodView) -> list[Variable]:
    """Returns the variables of a trainer, except the one for its grace period.

    References have the form in which the API server stores them, so that later comparisons find no difference.
    """
    token = {"name": _token_secret(pod), "key": MASTER_TOKEN_KEY}
    pod_ip = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    variables: list[Variable] = [
        {"name": "EDL_MASTER", "value": pod.annotations[ANNOTATION_MASTER_ADDRESS]},
        {"name": "EDL_JOB", "value": pod.job},
        {"name": "EDL_TOKEN", "valueFrom": {"secretKeyRef": token}},
        {"name": "EDL_ADDRESS", "valueFrom": pod_ip},
        {"name": "EDL_EXCHANGE_PORT", "value": str(EXCHANGE_PORT)},
    ]
    for name, annotation in _OPTIONAL_VARIABLES.items():
        if text := pod.annotations.get(annotation):
            variables.append({"name": name, "value": text})
    if number := pod.labels.get(LABEL_TRAINER_ID):
        variables.append({"name": "EDL_TRAINER", "value": f"trainer-{number}"})
    return variables


def _grace(requested_s: int, cap_s: int) -> list[Variable]:
    """Returns the variable with the time from SIGTERM to exit, if the user has chosen that time.

    30 s is the API server's default, and `cap_s` is the value that admission sets. Neither counts as the
    user's choice: the SDK then uses its own shorter default, so that a reclaim takes less time.
    """
    if requested_s in (DEFAULT_GRACE_S, cap_s) or requested_s < 1:
        return []
    grace_s = min(requested_s, cap_s)
    seconds = max(grace_s - _EXIT_S, grace_s / 2)
    return [{"name": _GRACE, "value": f"{seconds:g}"}]


def _token_secret(pod: PodView) -> str:
    """Returns the Secret with the job's token, which pods created by EDL name in an annotation."""
    return pod.annotations.get(ANNOTATION_TOKEN_SECRET) or object_name(pod.job)


def _resources(pod: PodView) -> dict[str, object]:
    """Returns the sidecar's requests and limits; admission has validated the requests that the Job sets."""
    cpu = pod.annotations.get(ANNOTATION_MASTER_CPU, CPU_REQUEST)
    memory = pod.annotations.get(ANNOTATION_MASTER_MEMORY, MEMORY_REQUEST)
    limits = {"memory": _larger("memory", memory, _MEMORY_LIMIT)}
    if pod.limits_cpu:
        limits["cpu"] = _larger("cpu", cpu, _CPU_LIMIT)
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}


def _larger(resource: str, *texts: str) -> str:
    return max(texts, key=lambda text: quantity.parse(resource, text))


def _container(
    job: str, image: str, flags: list[str], resources: dict[str, object]
) -> dict[str, object]:
    """Returns the core/v1 Container of the master, as restricted as EDL's own servers."""
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
        "env": server_variables(job),
        "ports": [{"name": "edl-master", "containerPort": MASTER_PORT, "protocol": "TCP"}],
        "resources": resources,
        "startupProbe": {"httpGet": health, "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {"httpGet": health, "periodSeconds": 10, "timeoutSeconds": 3},
        "securityContext": dict(STRICT),
        "volumeMounts": [
            {"name": _JOURNAL_VOLUME, "mountPath": _JOURNAL},
            {"name": _ACCESS_VOLUME, "mountPath": _ACCESS, "readOnly": True},
            token_mount(),
        ],
    }


def _access_volume() -> dict[str, object]:
    """Returns a volume like the one that the ServiceAccount admission plugin mounts, only for the sidecar.

    It gives the sidecar access to the API server even if the user's containers have none.
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
