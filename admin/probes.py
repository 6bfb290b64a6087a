"""Objects for dry runs by the admin's commands, equal to those that EDL creates. Pure."""

from collections.abc import Mapping
from typing import Any

from kube import request
from kube.request import Resource
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN, MASTER_PORT

_NAME = "edl-admin-probe"
_RBAC = "rbac.authorization.k8s.io"


def job(manager: str = "") -> dict[str, Any]:
    """Returns an elastic Job or, if `manager` is given, a plain Job with this `spec.managedBy`."""
    spec: dict[str, Any] = {
        "parallelism": 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [_container()]}},
    }
    if manager:
        return {"metadata": _metadata(), "spec": {**spec, "managedBy": manager}}
    annotations = {ANNOTATION_MIN: "1", ANNOTATION_MAX: "1"}
    return {"metadata": {**_metadata(), "annotations": annotations}, "spec": spec}


def pod() -> dict[str, Any]:
    """Returns a pod like EDL's own pods and the pods of jobs' masters."""
    security = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {"securityContext": security, "restartPolicy": "Never", "containers": [_container()]}
    return {"metadata": _metadata(), "spec": spec}


def master_objects(namespace: str) -> Mapping[Resource, dict[str, Any]]:
    """Returns the objects that `reconciler.manifests` creates for a job, other than pods."""
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [_NAME],
        "verbs": ["get", "update"],
    }
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    port = {"name": "edl-master", "port": MASTER_PORT, "protocol": "TCP"}
    selector = {"matchLabels": {"edl.training/job": _NAME}}
    return {
        request.SERVICES: {
            "metadata": _metadata(),
            "spec": {"selector": {"edl.training/job": _NAME}, "ports": [port]},
        },
        request.SECRETS: {"metadata": _metadata(), "type": "Opaque"},
        request.CONFIGMAPS: {"metadata": _metadata()},
        request.ROLES: {"metadata": _metadata(), "rules": [rule]},
        request.ROLEBINDINGS: {
            "metadata": _metadata(),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": _NAME},
            "subjects": [subject],
        },
        request.PODDISRUPTIONBUDGETS: {
            "metadata": _metadata(),
            "spec": {"minAvailable": 1, "selector": selector},
        },
    }


def _metadata() -> dict[str, Any]:
    return {"name": _NAME}


def _container() -> dict[str, Any]:
    return {
        "name": "main",
        "image": "edl",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
