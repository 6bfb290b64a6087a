"""The rows of the page's tables: jobs, nodes, bursts and records as values for JSON. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from kube import story
from page.record_query import LoggedRecord
from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import is_surplus
from policy.cluster.snapshot import Job, Node, Pod
from policy.names import Role
from policy.records import Record, burst_to_json

MAX_RESOURCES = 6
_FIRST = ("cpu", "memory")
_LEFT_OUT = ("pods", "ephemeral-storage")
_LEFT_OUT_PREFIXES = ("hugepages-", "attachable-volumes-")
_SHOWN_LABELS = {
    "topology.kubernetes.io/zone": "zone",
    "node.kubernetes.io/instance-type": "type",
}
_MAX_AMOUNT = 2**63 - 1
"""The largest amount of a resource in Kubernetes."""
READY, CORDONED, TAINTED, LEAVING = 1, 2, 4, 8
"""Bits of a node's flags; LEAVING means that pods on it are being deleted."""


def resources(allocatable: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the resources to show: cpu and memory, then devices by name."""
    devices = sorted(
        name
        for name, amount in allocatable.items()
        if amount > 0
        and name not in (*_FIRST, *_LEFT_OUT)
        and not name.startswith(_LEFT_OUT_PREFIXES)
    )
    return (*_FIRST, *devices)[:MAX_RESOURCES]


def usage(cluster: ClusterState, names: Iterable[str]) -> list[list[int]]:
    """Returns [total, services, guaranteed, surplus] of each resource, over all nodes."""
    surplus: dict[str, int] = {}
    for of_node in cluster.surplus.values():
        amounts.add(surplus, of_node)
    services, training = cluster.usage.services, cluster.usage.training
    return [
        _shown(
            [
                cluster.allocatable.get(name, 0),
                services.get(name, 0),
                training.get(name, 0) - surplus.get(name, 0),
                surplus.get(name, 0),
            ]
        )
        for name in names
    ]


def _shown(totals: Iterable[int]) -> list[int]:
    """Limits amounts to `_MAX_AMOUNT` for JSON, because a pod created with a node may request any amount."""
    return [min(total, _MAX_AMOUNT) for total in totals]


def nodes(cluster: ClusterState) -> dict[str, int]:
    """Returns the numbers of all nodes, of ready nodes and of cordoned nodes."""
    values = cluster.nodes.values()
    return {
        "total": len(values),
        "ready": sum(node.ready for node in values),
        "unschedulable": sum(node.unschedulable for node in values),
    }


def waiting(cluster: ClusterState) -> dict[str, float]:
    """Returns the pods without a node: services that only wait for capacity, and trainers."""
    pods = cluster.waiting.values()
    services = [pod.created_s for pod in pods if not (pod.is_training or pod.gated)]
    trainers = sum(1 for pod in pods if pod.role is Role.TRAINER)
    return {
        "services": len(services),
        "oldestSince": min(services, default=0.0),
        "trainers": trainers,
    }


def job(cluster: ClusterState, job: Job, record: Record | None) -> dict[str, Any]:
    """Returns the row of a job.

    Args:
        cluster: The cluster state.
        job: The job.
        record: The newest decision about it.
    """
    trainers = cluster.trainers(job)
    code, text = story.state(job, record)
    spread = job.max_trainers - job.min_trainers
    servers = [pod for pod in cluster.servers_of(job) if not pod.terminal]
    count = len(trainers)
    return {
        "key": job.key,
        "namespace": job.namespace,
        "name": job.name,
        "queue": job.queue,
        "min": job.min_trainers,
        "max": job.max_trainers,
        "trainers": count,
        "ready": sum(pod.ready for pod in trainers),
        "waiting": sum(not pod.node for pod in trainers),
        "target": _target(job, record, count),
        "servers": job.servers.count if job.servers is not None else 0,
        "serversReady": sum(pod.ready for pod in servers),
        "master": job.master,
        "created": job.created_s,
        "state": state(job, count),
        "code": code,
        "text": text,
        "since": _since_s(job, record),
        "share": round(count * amounts.dominant(job.requests, cluster.allocatable), 5),
        "fulfilment": round((count - job.min_trainers) / spread, 4) if spread > 0 else None,
    }


def state(job: Job, trainers: int) -> str:
    """Returns the state of a job in one word."""
    if job.finished:
        return story.state(job, None)[0]
    if job.error:
        return "Invalid"
    if job.suspended:
        return "Suspended"
    return "Waiting" if trainers < job.min_trainers else "Running"


def _target(job: Job, record: Record | None, trainers: int) -> int:
    target = record.figures.get("target") if record is not None and not job.finished else None
    return target if isinstance(target, int) else trainers


def _since_s(job: Job, record: Record | None) -> float:
    if job.finished:
        return max(condition.time_s for condition in job.status.conditions)
    return record.since_s if record is not None else 0.0


def node(node: Node, pods: Iterable[Pod], names: Iterable[str]) -> tuple[list[Any], dict[str, str]]:
    """Returns the row of a node (without the numbers of trainers that fit on it), and the node's labels.

    Args:
        node: The node.
        pods: The pods that are bound to it and have not ended.
        names: The resources to show.
    """
    services: dict[str, int] = {}
    guaranteed: dict[str, int] = {}
    surplus: dict[str, int] = {}
    flags = READY * node.ready | CORDONED * node.unschedulable | TAINTED * bool(node.taints)
    for pod in pods:
        total = services if not pod.is_training else surplus if is_surplus(pod) else guaranteed
        amounts.add(total, pod.requests)
        flags |= LEAVING * pod.deleting
    sums = [
        _shown(total.get(name, 0) for total in (node.allocatable, services, guaranteed, surplus))
        for name in names
    ]
    labels = {
        short: node.labels[name] for name, short in _SHOWN_LABELS.items() if name in node.labels
    }
    return [node.name, flags, sums], labels


def record(logged: LoggedRecord) -> dict[str, Any]:
    """Returns a record with the meaning of its code and the remedy."""
    entry = logged.record
    return {
        "namespace": logged.namespace,
        "at": entry.at_s,
        "about": entry.about,
        "code": entry.code,
        "text": entry.text,
        "job": entry.job,
        "since": entry.since_s,
        "figures": dict(entry.figures),
        "meaning": story.meaning(entry.code),
        "helps": story.way_out(entry.code),
    }


def burst(logged: LoggedRecord) -> dict[str, Any]:
    """Returns a burst of services."""
    empty: dict[str, Any] = {"services": {}, "trainers": {}, "stages": {}, "lostSeconds": 0.0}
    return {**empty, **burst_to_json(logged.record), "namespace": logged.namespace}


def objective(entry: Record | None) -> dict[str, Any] | None:
    """Returns the standing of the reclaim objective, or None if there is no objective."""
    if entry is None:
        return None
    return {"at": entry.at_s, "text": entry.text, **entry.figures}
