"""Fields of training pods that concern their scheduler, and the pod that tests a scheduler. Pure."""

from typing import Any

from policy.names import (
    ANNOTATION_SCHEDULER,
    CHECK_RESOURCE,
    CLASS_SURPLUS,
    DEFAULT_SCHEDULER,
    TRAINER_RESOURCE,
)
from policy.scheduling import Scheduling
from reconciler.manifests import affinity

CHECK_POD = "edl-scheduler-check"
_CHECK_SECURITY = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def address(spec: dict[str, Any], scheduling: Scheduling, node: str) -> dict[str, str]:
    """Changes a pod spec so that the scheduler in effect places the pod.

    With the marker resource, the scheduler asks the extender, which prefers the planned node. Without
    it, the pod itself prefers that node. It is only a preference, because the plan may be outdated by
    then.

    Args:
        spec: A core/v1 PodSpec.
        scheduling: How training pods choose their scheduler at present.
        node: The planned node.

    Returns:
        The annotation that names the scheduler; other webhooks do not change it.
    """
    named = spec.get("schedulerName") or DEFAULT_SCHEDULER
    scheduler = scheduling.scheduler_of(named)
    if scheduler != named:
        spec["schedulerName"] = scheduler
    if scheduling.marks(named):
        _request_marker(spec)
    elif node:
        affinity.prefer_node(spec, node)
    return {ANNOTATION_SCHEDULER: scheduler}


def _request_marker(spec: dict[str, Any]) -> None:
    """Requests the extended resource that makes kube-scheduler call the extender."""
    containers = spec.get("containers") or []
    if containers:
        resources = containers[0]["resources"] = containers[0].get("resources") or {}
        for part in ("requests", "limits"):
            resources[part] = {**(resources.get(part) or {}), TRAINER_RESOURCE: "1"}


def check_pod(namespace: str, scheduler: str) -> dict[str, Any]:
    """Returns the test pod that shows whether a scheduler is configured with the extender.

    It requests the marker resource and a resource that no node has, so it never runs. The scheduler
    compares it with every node and lists all insufficient resources. If the extender is not configured,
    the marker is one of them (kube-scheduler, noderesources/fit.go).

    Its priority class never preempts, and is below the priority for which cluster-autoscaler adds nodes.
    It tolerates every taint, because a scheduler checks taints before resources.
    """
    amounts = {TRAINER_RESOURCE: "1", CHECK_RESOURCE: "1"}
    container = {
        "name": "check",
        "image": "registry.k8s.io/pause",
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": _CHECK_SECURITY,
    }
    return {
        "metadata": {
            "name": CHECK_POD,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "edl"},
        },
        "spec": {
            "schedulerName": scheduler,
            "priorityClassName": CLASS_SURPLUS,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
