"""Encodes records as API objects; `kube.decode` decodes them to the same records."""

from typing import Any

from policy import quantity
from policy.cluster.snapshot import Constraints, Job, Node, Pod, Resources
from policy.names import (
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_QUEUE,
    ANNOTATION_WEIGHT,
    LABEL_JOB,
    LABEL_ROLE,
    LABEL_TIER,
    LABEL_TRAINER_ID,
    MANAGER,
)
from policy.priority_classes import CLASS_OF
from policy.timestamps import timestamp

Object = dict[str, Any]


def node(record: Node) -> Object:
    """Encodes a core/v1 Node."""
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in record.taints]
    ready = {"type": "Ready", "status": "True" if record.ready else "False"}
    return {
        "metadata": {"name": record.name, "uid": f"uid-{record.name}", "labels": record.labels},
        "spec": {"taints": taints, "unschedulable": record.unschedulable},
        "status": {"allocatable": _quantities(record.allocatable), "conditions": [ready]},
    }


def pod(record: Pod) -> Object:
    """Encodes a core/v1 Pod."""
    metadata: Object = {
        "name": record.name,
        "namespace": record.namespace,
        "uid": record.uid,
        "creationTimestamp": timestamp(record.created_s),
    }
    if record.deleting:
        metadata["deletionTimestamp"] = timestamp(record.deleted_s)
    if record.role is not None:
        metadata["labels"] = {
            LABEL_JOB: record.job,
            LABEL_ROLE: str(record.role),
            LABEL_TIER: str(record.tier),
            LABEL_TRAINER_ID: str(record.trainer_id),
        }
        metadata["ownerReferences"] = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": record.job,
                "uid": record.owner_uid,
                "controller": True,
            }
        ]
    status: Object = {"phase": str(record.phase)}
    if record.started_s:
        status["startTime"] = timestamp(record.started_s)
    if record.ready:
        status["conditions"] = [{"type": "Ready", "status": "True"}]
    if record.nominated:
        status["nominatedNodeName"] = record.nominated
    spec = _spec(record.requests, record.constraints) | {
        "priority": record.priority,
        "preemptionPolicy": "PreemptLowerPriority" if record.preempts else "Never",
        "nodeName": record.node,
    }
    if record.tier is not None:
        spec["priorityClassName"] = CLASS_OF[record.tier]
    return {"metadata": metadata, "spec": spec, "status": status}


def job(record: Job) -> Object:
    """Encodes a batch/v1 Job with EDL's annotations."""
    return {
        "metadata": {
            "name": record.name,
            "namespace": record.namespace,
            "uid": record.uid,
            "creationTimestamp": timestamp(record.created_s),
            "annotations": {
                ANNOTATION_MIN: str(record.min_trainers),
                ANNOTATION_MAX: str(record.max_trainers),
                ANNOTATION_WEIGHT: str(record.weight),
            }
            | ({ANNOTATION_QUEUE: record.queue} if record.queue else {}),
        },
        "spec": {
            "parallelism": record.parallelism,
            "managedBy": MANAGER,
            "template": {
                "spec": {"restartPolicy": "Never"} | _spec(record.requests, record.constraints)
            },
        },
        "status": {},
    }


def _spec(requests: Resources, constraints: Constraints) -> Object:
    quantities = _quantities({name: n for name, n in requests.items() if name != "pods"})
    spec: Object = {"containers": [{"name": "main", "resources": {"requests": quantities}}]}
    if constraints.terms:
        (term,) = constraints.terms
        spec["nodeSelector"] = {need.key: need.values[0] for need in term}
    if constraints.tolerations:
        spec["tolerations"] = [
            {"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect}
            for t in constraints.tolerations
        ]
    return spec


def _quantities(amounts: Resources) -> dict[str, str]:
    return {name: quantity.show(name, amount) for name, amount in amounts.items()}
