"""The objects of a job's master other than its pod, as JSON (docs/decisions/0009).

Pure. Called by `reconciler.job_objects`.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from policy import sidecar
from policy.names import LABEL_MASTER, MASTER_PORT, MASTER_TOKEN_KEY
from policy.snapshot import Job
from reconciler.manifests import owned


def config_map(job: Job) -> dict[str, Any]:
    """The ConfigMap for a master's snapshots, read by its successor; empty until the first one."""
    return {"metadata": _metadata(job)}


def secret(job: Job, token: str) -> dict[str, Any]:
    """The Secret with the token that master and trainers of this job share."""
    data = {MASTER_TOKEN_KEY: base64.b64encode(token.encode()).decode()}
    return {
        "metadata": _metadata(job),
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
    return {"metadata": _metadata(job), "rules": [rule]}


def role_binding(job: Job) -> dict[str, Any]:
    """The RoleBinding of the Role to the service account of the job's pods."""
    subject = {"kind": "ServiceAccount", "name": job.account, "namespace": job.namespace}
    reference = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": sidecar.object_name(job.name),
    }
    return {
        "metadata": _metadata(job),
        "roleRef": reference,
        "subjects": [subject],
    }


def service(job: Job) -> dict[str, Any]:
    """The Service in front of the pod that hosts the master, ready or not: trainers join early."""
    name = sidecar.object_name(job.name)
    return owned.service(job, name, {LABEL_MASTER: "true"}, "edl-master", MASTER_PORT)


def _metadata(job: Job) -> dict[str, Any]:
    return owned.metadata(job, sidecar.object_name(job.name))
