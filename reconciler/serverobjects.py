"""A job's parameter servers in the cluster, as JSON: a Service and a pod for each.

Pods are whole but for the image, which admission adds (`policy.servers`). All of it is owned by the
Job (docs/decisions/0013). Pure. Who calls: `reconciler.provider` and `reconciler.servers`.
"""

from collections.abc import Mapping
from typing import Any

from policy import environment, quantity, servers
from policy.names import (
    ANNOTATION_PLANNED_NODE,
    CLASS_SUPPORT,
    LABEL_JOB,
    LABEL_PREEMPTIBLE,
    LABEL_ROLE,
    LABEL_SERVER,
    LABEL_TIER,
    SERVER_CONTAINER,
    SERVER_PORT,
    Role,
    Tier,
)
from policy.sidecar import STRICT, USER
from policy.snapshot import Job, Servers
from reconciler import pods
from reconciler.masterobjects import owned

_PLACE = "/var/lib/edl-pserver"
"""Each job has a folder of its own in it, so that jobs may share a claim."""
_VOLUME = "edl-checkpoints"
_TAKEN_OVER = ("nodeSelector", "tolerations", "imagePullSecrets")
"""Of the trainers' template: servers may run where trainers may."""
_START_S = 600
"""Reading a large checkpoint takes minutes."""


def service(job: Job, number: int) -> dict[str, Any]:
    """One address for whichever pod is that server, ready or not: who asks early is told to wait."""
    port = {"name": SERVER_CONTAINER, "port": SERVER_PORT, "targetPort": SERVER_PORT}
    return {
        "metadata": owned(job, servers.name_of(job.name, number)),
        "spec": {
            "selector": {LABEL_JOB: job.name, LABEL_SERVER: str(number)},
            "publishNotReadyAddresses": True,
            "ports": [port],
        },
    }


def pod(job: Job, asked: Servers, number: int, node: str, grace_s: int) -> dict[str, Any]:
    """A v1 Pod for one server, without its image.

    Args:
        job: Whose; its template says where pods may run.
        asked: What it wants.
        number: Which of them.
        node: Where the plan has room for it; a wish that the extender knows of.
        grace_s: The policy's termination grace, for a last checkpoint.
    """
    metadata = owned(job, servers.name_of(job.name, number))
    metadata["ownerReferences"][0]["blockOwnerDeletion"] = True
    metadata["labels"] |= {
        LABEL_ROLE: Role.PSERVER.value,
        LABEL_TIER: Tier.SUPPORT.value,
        LABEL_PREEMPTIBLE: "false",
        LABEL_SERVER: str(number),
    }
    metadata["annotations"] = {ANNOTATION_PLANNED_NODE: node}
    spec: dict[str, Any] = {
        **_surroundings(job),
        "restartPolicy": "Always",
        "priorityClassName": CLASS_SUPPORT,
        "terminationGracePeriodSeconds": grace_s,
        "serviceAccountName": job.account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # their variables look like ours
        "securityContext": {"fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch"},
        "containers": [_container(job, asked, number)],
        "volumes": [_volume(asked)],
    }
    pods.ask_extender(spec)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _surroundings(job: Job) -> dict[str, Any]:
    """Where it may run, and with which right to pull."""
    found = job.template.get("spec")
    template: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    spec = {name: template[name] for name in _TAKEN_OVER if template.get(name)}
    affinity = (template.get("affinity") or {}).get("nodeAffinity")
    return {**spec, "affinity": {"nodeAffinity": affinity}} if affinity else spec


def _container(job: Job, asked: Servers, number: int) -> dict[str, Any]:
    health = {"path": "/healthz", "port": SERVER_PORT}
    memory = quantity.show("memory", asked.requests["memory"])
    return {
        "name": SERVER_CONTAINER,
        "command": [
            *("python", "-m", "pserver"),
            *("--index", str(number), "--of", str(asked.count)),
            *("--listen", f"0.0.0.0:{SERVER_PORT}"),
            *("--checkpoints", _PLACE),
            *("--job", job.name),
        ],
        "env": environment.of_job(job.name),
        "ports": [{"name": SERVER_CONTAINER, "containerPort": SERVER_PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": quantity.show("cpu", asked.requests["cpu"]), "memory": memory},
            "limits": {"memory": memory},
        },
        "startupProbe": {"httpGet": health, "periodSeconds": 1, "failureThreshold": _START_S},
        "readinessProbe": {"httpGet": health, "periodSeconds": 2, "timeoutSeconds": 3},
        "livenessProbe": {"httpGet": health, "periodSeconds": 10, "timeoutSeconds": 5},
        "securityContext": dict(STRICT),
        "volumeMounts": [{"name": _VOLUME, "mountPath": _PLACE}],
    }


def _volume(asked: Servers) -> dict[str, Any]:
    """The claim, or a volume that outlives the container, and not the pod."""
    if asked.claim:
        return {"name": _VOLUME, "persistentVolumeClaim": {"claimName": asked.claim}}
    return {"name": _VOLUME, "emptyDir": {}}
