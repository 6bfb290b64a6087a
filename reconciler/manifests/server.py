"""A job's parameter servers as JSON: a Service and a pod for each. Pure.

Pods are complete except for the image, which admission adds (`policy.admission.mutation`). The Job owns
all objects (docs/decisions/0013). Called by `reconciler.masters.job_objects` and
`reconciler.masters.server_controller`.
"""

from dataclasses import replace
from typing import Any

import orjson

from policy import quantity
from policy.admission import sidecar, unstructured
from policy.admission.frameworks import RolePod
from policy.admission.sidecar import STRICT, USER
from policy.admission.views import PodView
from policy.cluster.snapshot import Job, ServerSpec
from policy.names import (
    CLASS_SUPPORT,
    LABEL_PREEMPTIBLE,
    LABEL_ROLE,
    LABEL_SERVER,
    LABEL_TIER,
    SERVER_CONTAINER,
    SERVER_PORT,
    NodeRequest,
    Role,
    Tier,
    server_name,
)
from policy.scheduling import UNMARKED, Scheduling
from reconciler.manifests import owned, role_pods, scheduler
from reconciler.manifests import trainer as trainer_manifests

_MOUNT_PATH = "/var/lib/edl-pserver"
"""Each job has its own folder below this path, so that jobs can share a claim."""
_VOLUME = "edl-checkpoints"
_COPIED_FIELDS = ("nodeSelector", "tolerations", "imagePullSecrets", "schedulerName")
"""Fields copied from the trainers' template, because servers may run where trainers may."""
_FOLDER_LIMIT = 4
"""Size limit of a pod's volume, as a multiple of the server's memory. The volume holds three checkpoints, the
next one and the one at shutdown; each is up to 70 % of the memory. The kubelet evicts a pod above the limit."""
_START_S = 600
"""Startup limit in seconds; reading a large checkpoint takes minutes."""


def service(job: Job, number: int) -> dict[str, Any]:
    """Returns the Service of one server, even if not ready: a starting server answers that it is not ready."""
    name = server_name(job.name, number)
    own_ports = job.servers.ports if job.servers is not None else ()
    ports = role_pods.port_names(own_ports) or {SERVER_CONTAINER: SERVER_PORT}
    return owned.service(job, name, {LABEL_SERVER: str(number)}, ports)


def pod(
    job: Job,
    server_spec: ServerSpec,
    number: int,
    node: str,
    grace_s: int,
    *,
    secret: str,
    role_pod: RolePod | None = None,
    scheduling: Scheduling = UNMARKED,
) -> dict[str, Any]:
    """Returns the v1 Pod of one server, without its image.

    Args:
        job: The job, whose template restricts where its pods may run.
        server_spec: Count, requests and claim of the job's servers.
        number: Index of the server.
        node: The planned node, which is preferred; "" for a server that waits for an autoscaler to add
            a node. The pod of such a server does not request the extender's resource.
        grace_s: The policy's termination grace period, used for a last checkpoint.
        secret: Name of the Secret with the job's token.
        role_pod: Addresses of the job's other roles, for the variables of a user's program.
        scheduling: How training pods choose their scheduler at present.
    """
    metadata = owned.metadata(job, server_name(job.name, number), blocks=True)
    metadata["labels"] |= {
        LABEL_ROLE: Role.PSERVER.value,
        LABEL_TIER: Tier.SUPPORT.value,
        LABEL_PREEMPTIBLE: "false",
        LABEL_SERVER: str(number),
    }
    node_request = None if node else NodeRequest.START
    metadata["annotations"] = trainer_manifests.node_annotations(node, node_request)
    if server_spec.template_json:
        user = role_pods.user_metadata(server_spec.template_json)
        metadata |= {field: user[field] | metadata[field] for field in user}
    if server_spec.ports:
        server = replace(role_pod or RolePod(Role.PSERVER), role=Role.PSERVER, number=number)
        spec = role_pods.server_spec(job, server_spec.template_json, server)
        own_s = spec.get("terminationGracePeriodSeconds")
        spec["terminationGracePeriodSeconds"] = grace_s if own_s is None else min(grace_s, own_s)
    else:
        spec = _edl_spec(job, server_spec, number, grace_s, secret)
    spec["priorityClassName"] = CLASS_SUPPORT
    in_force = scheduling if node_request is None else scheduling.unmarked
    metadata["annotations"] |= scheduler.address(spec, in_force, node)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _edl_spec(
    job: Job, server_spec: ServerSpec, number: int, grace_s: int, secret: str
) -> dict[str, Any]:
    """Returns the pod spec for EDL's own server program."""
    return {
        **_placement(job, server_spec),
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": grace_s,
        "serviceAccountName": job.account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # variables of service links could be mistaken for EDL's
        "securityContext": {"fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch"},
        "containers": [_container(job, server_spec, number)],
        "volumes": [_volume(server_spec), sidecar.token_volume(secret)],
    }


def _placement(job: Job, server_spec: ServerSpec) -> dict[str, Any]:
    """Returns the fields that restrict where servers run: from their own template, or the trainers'."""
    if server_spec.template_json:
        placement: dict[str, Any] = orjson.loads(server_spec.template_json)["spec"]
        return placement
    template = unstructured.mapping(job.template, "spec")
    spec = {name: template[name] for name in _COPIED_FIELDS if template.get(name)}
    affinity = unstructured.mapping(template, "affinity").get("nodeAffinity")
    return {**spec, "affinity": {"nodeAffinity": affinity}} if affinity else spec


def _container(job: Job, server_spec: ServerSpec, number: int) -> dict[str, Any]:
    health = {"path": "/healthz", "port": SERVER_PORT}
    cpu = quantity.show("cpu", server_spec.requests["cpu"])
    memory = quantity.show("memory", server_spec.requests["memory"])
    limited = PodView.parse(job.template).limits_cpu
    return {
        "name": SERVER_CONTAINER,
        "command": [
            *("python", "-m", "pserver"),
            *("--index", str(number), "--of", str(server_spec.count)),
            *("--listen", f":{SERVER_PORT}"),
            *("--checkpoints", _MOUNT_PATH),
            *("--job", job.name),
        ],
        "env": sidecar.server_variables(job.name),
        "ports": [{"name": SERVER_CONTAINER, "containerPort": SERVER_PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {
                "cpu": cpu,
                "memory": memory,
            },
            "limits": {"memory": memory} | ({"cpu": cpu} if limited else {}),
        },
        "startupProbe": {"httpGet": health, "periodSeconds": 1, "failureThreshold": _START_S},
        "readinessProbe": {"httpGet": health, "periodSeconds": 2, "timeoutSeconds": 3},
        "livenessProbe": {"httpGet": health, "periodSeconds": 10, "timeoutSeconds": 5},
        "securityContext": dict(STRICT),
        "volumeMounts": [
            {"name": _VOLUME, "mountPath": _MOUNT_PATH},
            sidecar.token_mount(),
        ],
    }


def _volume(server_spec: ServerSpec) -> dict[str, Any]:
    """Returns the volume of the claim, or a volume that survives the container but not the pod."""
    if server_spec.claim:
        return {"name": _VOLUME, "persistentVolumeClaim": {"claimName": server_spec.claim}}
    memory = server_spec.requests["memory"]
    limit = quantity.show("memory", _FOLDER_LIMIT * memory)
    return {"name": _VOLUME, "emptyDir": {"sizeLimit": limit}}
