"""API objects as JSON: a test names what matters to it and nothing else."""

from collections.abc import Mapping
from typing import Any

from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    LABEL_JOB,
    LABEL_ROLE,
    LABEL_TIER,
    LABEL_TRAINER_ID,
    MANAGER,
    Role,
    Tier,
)
from policy.priority_classes import CLASS_OF, EDL_CLASSES


def node(name: str, cpu: int = 18, **labels: str) -> dict[str, Any]:
    """A node that is ready."""
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"},
            "conditions": [ready],
        },
    }


def containers(cpu: float) -> list[dict[str, Any]]:
    """One container that requests the given CPU."""
    requests = {"requests": {"cpu": str(cpu)}}
    return [{"name": "main", "image": "none", "resources": requests}]


def job(
    name: str,
    low: int = 1,
    high: int = 10,
    *,
    cpu: float = 5,
    managed: bool = True,
    master: bool = False,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """An elastic Job in namespace "ml"."""
    bounds = {ANNOTATION_MIN: str(low), ANNOTATION_MAX: str(high)}
    if master:
        bounds[ANNOTATION_MASTER] = "true"
    bounds |= annotations or {}
    template = {"spec": {"restartPolicy": "Never", "containers": containers(cpu)}}
    manager = {"managedBy": MANAGER} if managed else {}
    return {
        "metadata": {"name": name, "namespace": "ml", "annotations": bounds},
        "spec": {"parallelism": low, "template": template, **manager, **spec},
    }


def pod(name: str, cpu: float = 3, *, namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    """A pod of a service."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": containers(cpu), **spec},
    }


def trainer(
    owner: str, number: int, where: str = "", tier: Tier = Tier.SURPLUS, cpu: float = 5
) -> dict[str, Any]:
    """A trainer of a job, bound to `where`."""
    pod_object = member(
        owner, f"{owner}-trainer-{number}", Role.TRAINER, tier, where=where, cpu=cpu
    )
    pod_object["metadata"]["labels"][LABEL_TRAINER_ID] = str(number)
    return pod_object


def member(
    owner: str, name: str, role: Role, tier: Tier, *, where: str = "", cpu: float = 1
) -> dict[str, Any]:
    """Any pod of a job."""
    values = EDL_CLASSES[CLASS_OF[tier]]
    pod_object = pod(
        name,
        cpu,
        namespace="ml",
        priority=values.value,
        preemptionPolicy=values.preemption_policy,
    )
    pod_object["metadata"]["labels"] = {
        LABEL_JOB: owner,
        LABEL_ROLE: str(role),
        LABEL_TIER: str(tier),
    }
    if where:
        pod_object["spec"]["nodeName"] = where
    return pod_object
