"""Trainer pods as JSON, from a job's template, and their PodDisruptionBudget.

Pods are complete: priority class, grace, labels, scheduler and the marker resource are those that the
webhook would add, so it may be down. The master of a job is the exception: here its pod only gets a
label, and all pods get annotations that the webhook turns into environment variables.
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
    """The pod's name, `<job>-trainer-<id>`: the same id always names the same pod."""
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
    """A v1 Pod of one trainer.

    Args:
        job: The job, whose template is used.
        trainer_id: Id of the trainer, never used before in this job.
        tier: Surplus or guaranteed.
        node: The planned node, a preference.
        grace_s: The policy's cap on the termination grace.
        endpoints: Annotations with the addresses of the job's master and servers; None for a job
            without a master.
        snapshot: Name of the master's ConfigMap on the pod that hosts it: the webhook then adds
            EDL's master. "" on other pods.
        role_pod: Whom the trainer reaches, for the variables of its frameworks.
        node_request: Why it is created without a planned node. Such a pod does not ask for the
            extender's resource: no node that an autoscaler can add has it.
        scheduling: How training pods ask for a scheduler now.
        avoided_nodes: Nodes on which it must not run.
        pools: The policy's node pools, which one without the marker requires by itself.
        low_share: As in `policy.planning.plan.Create`.
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
    """EDL's labels, and those that the built-in controller puts on a Job's pods."""
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
    """The template's labels, without those that would make each pod the master or a server."""
    labels = metadata.get("labels") or {}
    unwanted = (LABEL_MASTER, LABEL_SERVER)
    return {name: text for name, text in labels.items() if name not in unwanted}


def _master_annotations(job: Job, snapshot: str) -> dict[str, str]:
    """What the webhook needs to add EDL's master."""
    if job.master_template_json:
        return {}
    return {**job.master_settings, ANNOTATION_SNAPSHOT: snapshot}


def _kept_annotations(annotations: Mapping[str, str], tier: Tier) -> dict[str, str]:
    """The template's annotations that may be on a trainer: its unsaved work is no tenant's word."""
    unwanted = (
        ANNOTATION_NODE_REQUEST,
        ANNOTATION_UNCOMMITTED,
        *(DRAIN_BLOCKS if tier is Tier.SURPLUS else ()),
    )
    return {name: text for name, text in annotations.items() if name not in unwanted}


def _preemptible_spec(
    template: Mapping[str, Any], priority_class: str, grace_s: int
) -> dict[str, Any]:
    """The template's pod spec with the priority and grace of a trainer."""
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
    """The annotation of a pod with its planned node, or with why it has none."""
    if node_request is None:
        return {ANNOTATION_PLANNED_NODE: node}
    return {ANNOTATION_NODE_REQUEST: node_request.value}


def endpoint_annotations(
    job: Job, address: str, servers: Sequence[str], secret: str
) -> dict[str, str]:
    """Annotations of a trainer that the webhook turns into environment variables.

    Args:
        job: The trainer's job.
        address: URL of its master; "" for a job without one.
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
    """A policy/v1 PodDisruptionBudget: drains and stock preemption leave a job its minimum.

    It covers the guaranteed tier alone. Surplus trainers may be evicted at any time, and an
    eviction that a budget covers costs the API server up to half a second when two of them
    conflict. A drain still succeeds, because the plan first replaces guaranteed trainers on
    nodes that are cordoned or have a new taint. A pod that is not ready does not block it (`AlwaysAllow`).
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
