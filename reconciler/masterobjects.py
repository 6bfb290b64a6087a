"""What a job's master needs in the cluster beside its pod, as JSON.

All of it is owned by the Job and goes with it (docs/decisions/0009). Pure. Who calls:
`reconciler.provider`.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from policy import sidecar
from policy.names import LABEL_JOB, LABEL_MASTER, MASTER_PORT, MASTER_TOKEN_KEY
from policy.snapshot import Job


def config_map(job: Job) -> dict[str, Any]:
    """Where masters leave their snapshots to each other; empty until the first writes."""
    return {"metadata": owned(job, sidecar.object_name(job.name))}


def secret(job: Job, token: str) -> dict[str, Any]:
    """The token that master and trainers of this job share."""
    data = {MASTER_TOKEN_KEY: base64.b64encode(token.encode()).decode()}
    return {"metadata": owned(job, sidecar.object_name(job.name)), "type": "Opaque", "data": data}


def token(found: Mapping[str, Any]) -> str:
    """The token in a Secret as the API server has it; "" where there is none that can be read."""
    text = (found.get("data") or {}).get(MASTER_TOKEN_KEY) or ""
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def role(job: Job) -> dict[str, Any]:
    """To read and write that one ConfigMap, and nothing else."""
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [sidecar.object_name(job.name)],
        "verbs": ["get", "update"],
    }
    return {"metadata": owned(job, sidecar.object_name(job.name)), "rules": [rule]}


def role_binding(job: Job) -> dict[str, Any]:
    """Gives the role to the service account of the job's pods."""
    name = sidecar.object_name(job.name)
    subject = {"kind": "ServiceAccount", "name": job.account, "namespace": job.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return {
        "metadata": owned(job, sidecar.object_name(job.name)),
        "roleRef": reference,
        "subjects": [subject],
    }


def service(job: Job) -> dict[str, Any]:
    """One address for whichever pod carries the master, ready or not: trainers may join early."""
    return {
        "metadata": owned(job, sidecar.object_name(job.name)),
        "spec": {
            "selector": {LABEL_JOB: job.name, LABEL_MASTER: "true"},
            "publishNotReadyAddresses": True,
            "ports": [{"name": "edl-master", "port": MASTER_PORT, "targetPort": MASTER_PORT}],
        },
    }


def address(made: Mapping[str, Any], port: int) -> str:
    """The URL of a Service as the API server made it; "" where it has no address of its own."""
    found = (made.get("spec") or {}).get("clusterIP") or ""
    if found in ("", "None"):
        return ""
    host = f"[{found}]" if ":" in found else found
    return f"http://{host}:{port}"


def is_own(job: Job, found: Mapping[str, Any]) -> bool:
    """Whether an object that exists belongs to this very Job, not to a namesake or a user."""
    references = (found.get("metadata") or {}).get("ownerReferences") or ()
    return any(reference.get("uid") == job.uid for reference in references)


def owned(job: Job, name: str) -> dict[str, Any]:
    """Metadata of an object that goes with the Job."""
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
