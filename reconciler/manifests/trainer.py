"""Trainer pods as JSON, from a job's template, and their PodDisruptionBudget. Pure.

Pods already have the priority class, grace period, labels, scheduler and marker resource that the webhook
would add, so the webhook may be down. Only a job's master needs the webhook: the pod that hosts the master gets a
label here, and all pods get annotations that the webhook turns into environment variables.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

from policy.admission.frameworks import RolePod
from policy.cluster.snapshot import Job
from policy.document.model import NodePool
from policy.names import (
    ANNOTATION_DATA,
    ANNOTATION_EPOCHS,
    ANNOTATION_MASTER_ADDRESS,
    ANNOTATION_MAX,
    ANNOTATION_NODE_REQUEST,
    ANNOTATION_PLANNED_NODE,
    ANNOTATION_SERVER_ADDRESSES,
    ANNOTATION_SNAPSHOT,
    ANNOTATION_TOKEN_SECRET,
    ANNOTATION_UNCOMMITTED,
    DRAIN_BLOCKS,
    LABEL_JOB,
    LABEL_MASTER,
    LABEL_PREEMPTIBLE,
    LABEL_ROLE,
    LABEL_SERVER,
    LABEL_TIER,
    LABEL_TRAINER_ID,
    TRAINER_INFIX,
    NodeRequest,
    Role,
    Tier,
)
from policy.priority_classes import class_of
from policy.scheduling import UNMARKED, Scheduling
from reconciler.manifests import affinity, owned, role_pods, scheduler


def pod_name(job: Job, trainer_id: int) -> str:
    """Returns the pod's name, `<job>-trainer-<id>`; an id always gives the same name."""
    return f"{job.name}{TRAINER_INFIX}{trainer_id}"


def pod(
    job: Job,
    trainer_id: int,
    tier: Tier,
    node: str,
    grace_s: int,
    *,
    endpoints: Mapping[str, str] | None = None,
    snapshot: str = "",
    role_pod: RolePod | None = None,
    node_request: NodeRequest | None = None,
    scheduling: Scheduling = UNMARKED,
    avoided_nodes: Collection[str] = (),
    pools: Collection[NodePool] = (),
    low_share: bool = False,
) -> dict[str, Any]:
    """Returns the v1 Pod of one trainer.

    Args:
        job: The job, whose template is used.
        trainer_id: Id of the trainer, never used before in this job.
        tier: Guaranteed or surplus.
        node: The planned node, which is preferred.
        grace_s: Upper limit for the termination grace period, from the policy.
        endpoints: Annotations with the addresses of the job's master and servers, or None for a job
            without a master.
        snapshot: Name of the master's ConfigMap for the pod that hosts the master, so that the webhook
            adds EDL's master; "" for other pods.
        role_pod: Addresses of the job's other roles, for the variables of its frameworks.
        node_request: Why the pod is created without a planned node, or None if it has one. A pod without
            a planned node does not request the extender's resource, because the nodes that an autoscaler
            can add do not have that resource.
        scheduling: How training pods choose their scheduler at present.
        avoided_nodes: Nodes on which the pod must not run.
        pools: The policy's node pools. A pod without the marker requires them by node affinity.
        low_share: See `policy.planning.plan.Create`.
    """
    template: Mapping[str, Any] = job.template
    user_metadata = template.get("metadata") or {}
    metadata = owned.metadata(job, pod_name(job, trainer_id), blocks=True)
    labels = _user_labels(user_metadata) | metadata["labels"] | _labels(job, trainer_id, tier)
    annotations = _kept_annotations(user_metadata.get("annotations") or {}, tier)
    annotations |= node_annotations(node, node_request)
    annotations |= endpoints or {}
    class_name = class_of(tier, low_share=low_share)
    spec = _preemptible_spec(template.get("spec") or {}, class_name, grace_s)
    if role_pod is not None:
        role_pods.add_roles(job, spec, role_pod, hosts_master=bool(snapshot))
    if snapshot:
        labels[LABEL_MASTER] = "true"
        annotations |= _master_annotations(job, snapshot)
    if node_request is not None:
        scheduling = scheduling.unmarked
    annotations |= scheduler.address(spec, scheduling, node)
    affinity.avoid_nodes(spec, avoided_nodes)
    if not scheduling.marks(job.scheduler):
        affinity.require_pools(spec, pools)
    metadata = {**metadata, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _labels(job: Job, trainer_id: int, tier: Tier) -> dict[str, str]:
    """Returns EDL's labels, and the labels that the built-in controller sets on a Job's pods."""
    return {
        "batch.kubernetes.io/job-name": job.name,
        "batch.kubernetes.io/controller-uid": job.uid,
        "job-name": job.name,
        "controller-uid": job.uid,
        LABEL_ROLE: Role.TRAINER.value,
        LABEL_TRAINER_ID: str(trainer_id),
        LABEL_TIER: tier.value,
        LABEL_PREEMPTIBLE: "true",
    }


def _user_labels(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Returns the template's labels, except those that would turn every pod into a master or server."""
    labels = metadata.get("labels") or {}
    unwanted = (LABEL_MASTER, LABEL_SERVER)
    return {name: text for name, text in labels.items() if name not in unwanted}


def _master_annotations(job: Job, snapshot: str) -> dict[str, str]:
    """Returns the annotations from which the webhook adds EDL's master."""
    if job.master_template_json:
        return {}
    return {**job.master_settings, ANNOTATION_SNAPSHOT: snapshot}


def _kept_annotations(annotations: Mapping[str, str], tier: Tier) -> dict[str, str]:
    """Returns the template's annotations, except those that only EDL may set, such as the uncommitted seconds."""
    unwanted = (
        ANNOTATION_NODE_REQUEST,
        ANNOTATION_UNCOMMITTED,
        *(DRAIN_BLOCKS if tier is Tier.SURPLUS else ()),
    )
    return {name: text for name, text in annotations.items() if name not in unwanted}


def _preemptible_spec(
    template: Mapping[str, Any], priority_class: str, grace_s: int
) -> dict[str, Any]:
    """Returns the template's pod spec with a trainer's priority and grace period."""
    spec = deepcopy(dict(template))
    spec["priorityClassName"] = priority_class
    spec.pop("priority", None)
    spec.pop("preemptionPolicy", None)
    template_grace_s = spec.get("terminationGracePeriodSeconds")
    spec["terminationGracePeriodSeconds"] = (
        grace_s if template_grace_s is None else min(int(template_grace_s), grace_s)
    )
    return spec


def node_annotations(node: str, node_request: NodeRequest | None) -> dict[str, str]:
    """Returns the annotation with a pod's planned node, or with the reason why it has none."""
    if node_request is None:
        return {ANNOTATION_PLANNED_NODE: node}
    return {ANNOTATION_NODE_REQUEST: node_request.value}


def endpoint_annotations(
    job: Job, address: str, servers: Sequence[str], secret: str
) -> dict[str, str]:
    """Returns the annotations that the webhook turns into a trainer's environment variables.

    Args:
        job: The trainer's job.
        address: URL of the job's master; "" for a job without one.
        servers: URLs of its parameter servers, in order of index.
        secret: Name of the Secret with its token.
    """
    if not address:
        return {}
    annotations = {
        ANNOTATION_MASTER_ADDRESS: address,
        ANNOTATION_TOKEN_SECRET: secret,
        ANNOTATION_MAX: str(job.max_trainers),
    }
    for name in (ANNOTATION_DATA, ANNOTATION_EPOCHS):
        if name in job.master_settings:
            annotations[name] = job.master_settings[name]
    if servers:
        annotations[ANNOTATION_SERVER_ADDRESSES] = ",".join(servers)
    return annotations


def disruption_budget(job: Job) -> dict[str, Any]:
    """Returns a policy/v1 PodDisruptionBudget that keeps a job's minimum during drains and preemption.

    It covers the guaranteed tier only. Surplus trainers may be evicted at any time. If a budget covered them,
    two conflicting evictions could take the API server half a second. A drain of a node still succeeds,
    because the plan first replaces guaranteed trainers on cordoned or newly tainted nodes. `AlwaysAllow`
    keeps pods that are not ready from blocking a drain.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owned.metadata(job, f"{job.name}-trainers"),
        "spec": {
            "minAvailable": job.min_trainers,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {LABEL_JOB: job.name, LABEL_TIER: Tier.GUARANTEED.value}},
        },
    }
