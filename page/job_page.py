"""Builds the page of a job from the cluster's state and the records. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kube import story
from page import rows
from page.record_query import LoggedRecord
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Pod
from policy.names import Role
from policy.quantity import show
from policy.reasons import Observation
from policy.records import Record, newest_of_bursts

MAX_MEMBERS = 500
MAX_HISTORY = 100
_ENDED_BY_OTHERS = (Observation.EVICTED, Observation.TRAINER_FAILED)
"""Observations of trainers' ends that the page lists; trainers evicted for services are counted in bursts."""


def document(
    cluster: ClusterState, job: Job, record: Record | None, *, shares: bool
) -> dict[str, Any]:
    """Returns the job, its members and its accounting, without its history.

    Args:
        cluster: The cluster state.
        job: The job.
        record: The newest decision about it.
        shares: Whether the caller may see the job's share of the cluster.
    """
    members = sorted(
        (pod for pod in cluster.members.get(job.key, {}).values() if not pod.terminal),
        key=lambda pod: (pod.trainer_id, pod.name),
    )
    if not job.managed:
        members = list(cluster.trainers(job))
    servers = [pod for pod in cluster.servers_of(job) if not pod.terminal]
    row = rows.job(cluster, job, record)
    return {
        **row,
        "share": row["share"] if shares else None,
        "weight": job.weight,
        "requests": {name: show(name, n) for name, n in job.requests.items() if name != "pods"},
        "helps": story.way_out(row["code"]),
        "asOf": record.at_s if record is not None else 0.0,
        "figures": dict(record.figures) if record is not None else {},
        "succeeded": job.status.succeeded,
        "failed": job.status.failed,
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "at": condition.time_s,
            }
            for condition in job.status.conditions
        ],
        "books": _accounting(job),
        "members": [_member(pod) for pod in members[:MAX_MEMBERS]],
        "memberCount": len(members),
        "parameterServers": [
            _server(pod) for pod in sorted(servers, key=lambda pod: pod.server)[:MAX_MEMBERS]
        ],
        "masterAddress": job.edl_master and bool(master_address(cluster, job)),
    }


def master_address(cluster: ClusterState, job: Job) -> str:
    """Returns the address of the job's master, or "" if no master runs."""
    host = cluster.master_host(job)
    return host.address if host is not None else ""


def history(
    job: str, logged: Sequence[LoggedRecord], steps: Sequence[tuple[float, int]]
) -> dict[str, Any]:
    """Returns the history of a job.

    Args:
        job: Key of the job.
        logged: Records of the job and its trainers, oldest first.
        steps: (time, number of trainers), as observed by this process.
    """
    lost_s = _lost_s(job, (entry.record for entry in logged))
    since_s = steps[0][0] if steps else float("inf")
    before = [(r.at_s, r.figures["target"]) for r in targets(logged) if r.at_s < since_s]
    return {
        "history": [rows.record(entry) for entry in logged[-MAX_HISTORY:]],
        "trainersOverTime": [*before, *steps],
        "lostSeconds": round(lost_s, 1),
    }


def targets(logged: Iterable[LoggedRecord]) -> Iterator[Record]:
    """Yields the decisions about jobs that include a number of trainers (the figure `target`)."""
    for entry in logged:
        if entry.record.kind == "job" and isinstance(entry.record.figures.get("target"), int):
            yield entry.record


def _lost_s(job: str, records: Iterable[Record]) -> float:
    """Returns the seconds of training that a job repeated because of bursts and ended trainers."""
    records = list(records)
    gave = [(burst.figures.get("trainers") or {}).get(job) for burst in newest_of_bursts(records)]
    ended = [record.figures for record in records if record.code in _ENDED_BY_OTHERS]
    seconds = [figures.get("lostSeconds") for figures in (*gave, *ended) if figures]
    return sum(float(lost_s) for lost_s in seconds if isinstance(lost_s, int | float))


def _accounting(job: Job) -> dict[str, Any]:
    accounting = job.accounting
    return {
        "nextId": accounting.next_id,
        "open": len(accounting.open),
        "succeeded": accounting.succeeded,
        "failed": accounting.failed,
        "excused": accounting.excused,
        "disrupted": accounting.disrupted,
        "released": accounting.released,
        "failuresInRow": accounting.failures_in_row,
        "lastFailure": accounting.last_failure_s,
    }


def _member(pod: Pod) -> dict[str, Any]:
    return {
        "name": pod.name,
        "id": pod.trainer_id,
        "tier": str(pod.tier) if pod.tier is not None else "",
        "node": pod.node,
        "phase": str(pod.phase),
        "ready": pod.ready,
        "leaving": pod.deleting,
        "master": pod.master,
        "restarts": pod.restarts,
        "created": pod.created_s,
        "uncommittedSeconds": pod.uncommitted_s,
    }


def _server(pod: Pod) -> dict[str, Any]:
    return {
        "name": pod.name,
        "index": pod.server,
        "node": pod.node,
        "phase": str(pod.phase),
        "ready": pod.ready,
        "leaving": pod.deleting,
        "created": pod.created_s,
    }


def node_pod(pod: Pod) -> dict[str, Any]:
    """Returns a pod as shown on a node's page."""
    kind = "service" if pod.role is None else "trainer" if pod.role is Role.TRAINER else pod.role
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "kind": str(kind),
        "tier": str(pod.tier) if pod.tier is not None else "",
        "job": f"{pod.namespace}/{pod.job}" if pod.job else "",
        "leaving": pod.deleting,
        "requests": {name: show(name, n) for name, n in pod.requests.items() if name != "pods"},
    }
