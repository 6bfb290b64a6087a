"""The objects of a job's master other than its pod, as JSON.

The Job owns all of them, so they are deleted with it (docs/decisions/0009). Pure. Called by
`reconciler.job_objects`.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from policy import sidecar
from policy.names import LABEL_JOB, LABEL_MASTER, MASTER_PORT, MASTER_TOKEN_KEY
from policy.snapshot import Job


def config_map(job: Job) -> dict[str, Any]:
    """The ConfigMap for a master's snapshots, read by its successor; empty until the first one."""
    return {"metadata": owned_metadata(job, sidecar.object_name(job.name))}


def secret(job: Job, token: str) -> dict[str, Any]:
    """The Secret with the token that master and trainers of this job share."""
    data = {MASTER_TOKEN_KEY: base64.b64encode(token.encode()).decode()}
    return {
        "metadata": owned_metadata(job, sidecar.object_name(job.name)),
        "type": "Opaque",
        "data": data,
    }


def token(secret_object: Mapping[str, Any]) -> str:
    """The token in a Secret of the API server; "" where it is missing or unreadable."""
    text = (secret_object.get("data") or {}).get(MASTER_TOKEN_KEY) or ""
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def role(job: Job) -> dict[str, Any]:
    """The Role that may read and write the ConfigMap of this job alone."""
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [sidecar.object_name(job.name)],
        "verbs": ["get", "update"],
    }
    return {"metadata": owned_metadata(job, sidecar.object_name(job.name)), "rules": [rule]}


def role_binding(job: Job) -> dict[str, Any]:
    """The RoleBinding of the Role to the service account of the job's pods."""
    name = sidecar.object_name(job.name)
    subject = {"kind": "ServiceAccount", "name": job.account, "namespace": job.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return {
        "metadata": owned_metadata(job, sidecar.object_name(job.name)),
        "roleRef": reference,
        "subjects": [subject],
    }


def service(job: Job) -> dict[str, Any]:
    """The Service in front of the pod that hosts the master, ready or not: trainers join early."""
    return {
        "metadata": owned_metadata(job, sidecar.object_name(job.name)),
        "spec": {
            "selector": {LABEL_JOB: job.name, LABEL_MASTER: "true"},
            "publishNotReadyAddresses": True,
            "ports": [{"name": "edl-master", "port": MASTER_PORT, "targetPort": MASTER_PORT}],
        },
    }


def service_url(service_object: Mapping[str, Any], port: int) -> str:
    """The URL of a Service of the API server; "" where it has no cluster IP."""
    address = (service_object.get("spec") or {}).get("clusterIP") or ""
    if address in ("", "None"):
        return ""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"


def is_own(job: Job, api_object: Mapping[str, Any]) -> bool:
    """Whether an object belongs to this very Job, not to another of its name or to a user."""
    references = (api_object.get("metadata") or {}).get("ownerReferences") or ()
    return any(reference.get("uid") == job.uid for reference in references)


def owned_metadata(job: Job, name: str) -> dict[str, Any]:
    """Metadata of an object that the Job owns."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": {LABEL_JOB: job.name},
        "ownerReferences": [owner],
    }
