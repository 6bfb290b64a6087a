"""The objects of a job's master, except its pod, as JSON (docs/decisions/0009). Pure.

`reconciler.masters.job_objects` creates them and chooses the name that they share.
"""

import base64
import hmac
from typing import Any

from policy.admission import frameworks
from policy.cluster.snapshot import Job
from policy.names import (
    EXCHANGE_PORT,
    LABEL_JOB,
    LABEL_MASTER,
    MASTER_PORT,
    MASTER_TOKEN_KEY,
)
from reconciler.manifests import owned, role_pods


def config_map(job: Job, name: str) -> dict[str, Any]:
    """Returns the ConfigMap in which a master stores snapshots for its successor; empty at first."""
    return {"metadata": owned.metadata(job, name)}


def secret_name(job: Job, name: str) -> str:
    """Returns the name of the Secret, given the name of the other objects; new tokens add a suffix."""
    return name if job.token_generation == 1 else f"{name}-{job.token_generation}"


def secret(job: Job, name: str, key: bytes) -> dict[str, Any]:
    """Returns the Secret with the token that the job's master and trainers share."""
    data = {MASTER_TOKEN_KEY: base64.b64encode(token(job, key).encode()).decode()}
    return {
        "metadata": owned.metadata(job, secret_name(job, name)),
        "type": "Opaque",
        "data": data,
    }


def token(job: Job, key: bytes) -> str:
    """Returns the job's token, 256 bits as text; it can be derived again, so it is never read back.

    Args:
        job: The job; another uid or token generation gives another token.
        key: The key of this installation, which cannot be derived from tokens.
    """
    message = "\0".join(("token", job.namespace, job.uid, str(job.token_generation)))
    digest = hmac.digest(key, message.encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def role(job: Job, name: str) -> dict[str, Any]:
    """Returns the Role that may read and write this job's ConfigMap only."""
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [name],
        "verbs": ["get", "update"],
    }
    return {"metadata": owned.metadata(job, name), "rules": [rule]}


def role_binding(job: Job, name: str) -> dict[str, Any]:
    """Returns the RoleBinding of that Role to the service account of the job's pods."""
    subject = {"kind": "ServiceAccount", "name": job.account, "namespace": job.namespace}
    reference = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": name,
    }
    return {
        "metadata": owned.metadata(job, name),
        "roleRef": reference,
        "subjects": [subject],
    }


def network_policy(job: Job, name: str, edl_namespace: str) -> dict[str, Any]:
    """Returns a networking.k8s.io/v1 NetworkPolicy that admits only the job's pods and the reconciler.

    Args:
        job: The job.
        name: Name of the object.
        edl_namespace: Namespace of the reconciler, which polls the master.
    """
    of_job = {"matchLabels": {LABEL_JOB: job.name}}
    among: dict[str, Any] = {"from": [{"podSelector": of_job}]}
    if not frameworks.has_variables(
        job
    ):  # with frameworks, programs listen on ports unknown to EDL
        among["ports"] = [{"port": MASTER_PORT, "endPort": EXCHANGE_PORT, "protocol": "TCP"}]
    reconciler = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": edl_namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "edl-reconciler"}},
    }
    master_port = [{"port": MASTER_PORT, "protocol": "TCP"}]
    return {
        "metadata": owned.metadata(job, name),
        "spec": {
            "podSelector": of_job,
            "policyTypes": ["Ingress"],
            "ingress": [
                among,
                {"from": [reconciler], "ports": master_port},
            ],
        },
    }


def service(job: Job, name: str) -> dict[str, Any]:
    """Returns the Service of the master's host pod, even if not ready, because trainers join early."""
    return owned.service(job, name, {LABEL_MASTER: "true"}, role_pods.master_ports(job))
