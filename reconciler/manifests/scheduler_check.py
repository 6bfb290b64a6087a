"""The test pod that shows whether a scheduler has the extender's entries, as JSON. Pure.

It requests the marker resource and a resource that no node has, so it never runs. The scheduler
compares it with every node and names all insufficient resources: without the entries the marker is
one of them (kube-scheduler, noderesources/fit.go).
"""

from typing import Any

from policy.names import CHECK_RESOURCE, CLASS_SURPLUS, TRAINER_RESOURCE

NAME = "edl-scheduler-check"
_STRICT = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(namespace: str, scheduler: str) -> dict[str, Any]:
    """A v1 Pod in EDL's namespace for this scheduler.

    Its class never preempts, and lies below the priority from which cluster-autoscaler adds nodes.
    It tolerates every taint, because a scheduler checks taints before resources.
    """
    amounts = {TRAINER_RESOURCE: "1", CHECK_RESOURCE: "1"}
    container = {
        "name": "check",
        "image": "registry.k8s.io/pause",
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": _STRICT,
    }
    return {
        "metadata": {
            "name": NAME,
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
