"""Trainer pods as JSON, made from a job's template.

They are complete: priority class, grace, labels and the extender's resource are what the webhook
would give them, so it has nothing to add and may be down. The master of a job that asked for one
is the exception: pods are only marked for it here, and told what the webhook puts in their
environment.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from policy.names import (
    ANNOTATION_MASTER_ADDRESS,
    ANNOTATION_MAX,
    ANNOTATION_PLANNED_NODE,
    ANNOTATION_SERVER_ADDRESSES,
    CLASS_GUARANTEED,
    CLASS_SURPLUS,
    LABEL_JOB,
    LABEL_MASTER,
    LABEL_PREEMPTIBLE,
    LABEL_ROLE,
    LABEL_SERVER,
    LABEL_TIER,
    LABEL_TRAINER_ID,
    TRAINER_RESOURCE,
    Role,
    Tier,
)
from policy.snapshot import Job

_CLASSES = {Tier.SURPLUS: CLASS_SURPLUS, Tier.GUARANTEED: CLASS_GUARANTEED}


def name(job: Job, trainer_id: int) -> str:
    """`<job>-trainer-<id>`: the same id always means the same pod."""
    return f"{job.name}-trainer-{trainer_id}"


def trainer(
    job: Job,
    trainer_id: int,
    tier: Tier,
    node: str,
    grace_s: int,
    *,
    told: Mapping[str, str] | None = None,
    master: bool = False,
) -> dict[str, Any]:
    """A v1 Pod for one trainer.

    Args:
        job: Whose template is used.
        trainer_id: Its id, never used before in this job.
        tier: Surplus or guaranteed.
        node: Where the plan has room for it; a wish that the extender knows of.
        grace_s: The policy's cap on the termination grace.
        told: Annotations about the job's master and servers; None for a job without a master.
        master: Whether this pod is to carry it; the webhook adds it then.
    """
    template: Mapping[str, Any] = job.template
    metadata = template.get("metadata") or {}
    spec = deepcopy(dict(template.get("spec") or {}))
    spec["priorityClassName"] = _CLASSES[tier]
    spec.pop("priority", None)
    spec.pop("preemptionPolicy", None)
    asked_s = spec.get("terminationGracePeriodSeconds")
    spec["terminationGracePeriodSeconds"] = (
        grace_s if asked_s is None else min(int(asked_s), grace_s)
    )
    ask_extender(spec)
    labels = {
        **(metadata.get("labels") or {}),
        "batch.kubernetes.io/job-name": job.name,
        "batch.kubernetes.io/controller-uid": job.uid,
        "job-name": job.name,
        "controller-uid": job.uid,
        LABEL_JOB: job.name,
        LABEL_ROLE: Role.TRAINER.value,
        LABEL_TRAINER_ID: str(trainer_id),
        LABEL_TIER: tier.value,
        LABEL_PREEMPTIBLE: "true",
    }
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION_PLANNED_NODE: node}
    for name_of_one in (LABEL_MASTER, LABEL_SERVER):
        labels.pop(name_of_one, None)  # the template's is on every pod
    annotations |= told or {}
    if master:
        labels[LABEL_MASTER] = "true"
        annotations |= job.master_settings
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(job, trainer_id),
            "namespace": job.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job.name,
                    "uid": job.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def told(job: Job, address: str, servers: Sequence[str]) -> dict[str, str]:
    """What a trainer's annotations say of its job, for the webhook to put in its environment.

    Args:
        job: Whose trainer.
        address: Where its master serves; "" for a job without one.
        servers: Where its parameter servers do, in order of index.
    """
    if not address:
        return {}
    found = {ANNOTATION_MASTER_ADDRESS: address, ANNOTATION_MAX: str(job.max_trainers)}
    return {**found, ANNOTATION_SERVER_ADDRESSES: ",".join(servers)} if servers else found


def ask_extender(spec: dict[str, Any]) -> None:
    """Requests the resource that makes kube-scheduler ask the extender about this pod."""
    containers = spec.get("containers") or []
    if containers:
        resources = containers[0]["resources"] = containers[0].get("resources") or {}
        for part in ("requests", "limits"):
            resources[part] = {**(resources.get(part) or {}), TRAINER_RESOURCE: "1"}


def budget(job: Job) -> dict[str, Any]:
    """A policy/v1 PodDisruptionBudget: drains and stock preemption leave a job its minimum.

    It covers the guaranteed tier alone. Surplus is free to go at any time, and an eviction
    that a budget covers costs the API server up to half a second when two of them meet. A
    drain gets its way because the plan replaces guaranteed trainers on cordoned nodes first.
    A pod that is not ready does not block (`AlwaysAllow`).
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": f"{job.name}-trainers",
            "namespace": job.namespace,
            "labels": {LABEL_JOB: job.name},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job.name,
                    "uid": job.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "minAvailable": job.min_trainers,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {LABEL_JOB: job.name, LABEL_TIER: Tier.GUARANTEED.value}},
        },
    }
