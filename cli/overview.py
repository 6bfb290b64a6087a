"""The data of `top`: waiting services, jobs with shares and trainers, the newest burst, and the objective."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cli import records
from cli.errors import CliError
from cli.frame import Frame
from kube import decode, request
from kube.story import state
from policy.cluster import amounts
from policy.cluster.snapshot import Job, Pod
from policy.reasons import Observation
from policy.records import (
    CLUSTER,
    Record,
    burst_to_json,
    newest_of_bursts,
    newest_of_jobs,
)

_WAITING = "spec.nodeName=,status.phase=Pending"
_MAX_JOBS = 200


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of the cluster, or of one namespace, at one point in time."""

    scope: str
    now_s: float
    waiting: int
    """Services without a node."""
    oldest_s: float
    """How long the oldest of these services has waited."""
    trainers: int
    jobs: tuple[dict[str, Any], ...]
    """The largest jobs, with shares if the caller may list nodes."""
    job_count: int
    burst: Record | None
    """The newest burst."""
    objective: Record | None

    def to_json(self) -> dict[str, Any]:
        """Returns the overview as JSON, for `-o json` and `-o yaml`."""
        objective = dict(self.objective.figures) if self.objective else None
        if objective is not None:
            objective.pop("buckets", None)
        return {
            "scope": self.scope,
            "at": self.now_s,
            "servicesWaiting": self.waiting,
            "oldestWaitSeconds": round(self.oldest_s, 1),
            "trainers": self.trainers,
            "jobs": list(self.jobs),
            "jobCount": self.job_count,
            "newestReclaim": burst_to_json(self.burst) if self.burst else None,
            "objective": objective,
        }


class OverviewReader:
    """Reads overviews repeatedly; reads the nodes only once, because they rarely change."""

    def __init__(self, frame: Frame) -> None:
        """Initializes the overview reader."""
        self._frame = frame
        self._total: Mapping[str, int] | None = None

    def read(self) -> Overview:
        """Reads an overview.

        Raises:
            CliError: The permission to list Jobs or DecisionLogs is missing.
        """
        frame = self._frame
        namespace = frame.namespace
        log_records = records.of_namespace(frame, namespace)
        newest = newest_of_jobs(log_records)
        elastic = [
            job
            for obj in frame.all(request.JOBS, namespace)
            if (job := decode.job(obj)) is not None and not job.finished
        ]
        elastic.sort(key=lambda job: (-job.status.active, job.key))
        now_s = frame.now_s
        waiting = _services(frame, namespace)
        bursts = newest_of_bursts(log_records)
        return Overview(
            f"namespace {namespace}" if namespace else "all namespaces",
            now_s,
            len(waiting),
            max((now_s - pod.created_s for pod in waiting), default=0.0),
            sum(job.status.active for job in elastic),
            tuple(self._row(job, newest.get(job.key)) for job in elastic[:_MAX_JOBS]),
            len(elastic),
            bursts[-1] if bursts else None,
            self._objective(log_records),
        )

    def _row(self, job: Job, record: Record | None) -> dict[str, Any]:
        code, text = state(job, record)
        total = self._allocatable()
        share = job.status.active * amounts.dominant(job.requests, total)
        return {
            "namespace": job.namespace,
            "name": job.name,
            "trainers": job.status.active,
            "min": job.min_trainers,
            "max": job.max_trainers,
            "share": round(share, 4) if total else None,
            "code": code,
            "text": text,
        }

    def _allocatable(self) -> Mapping[str, int]:
        """Returns the allocatable resources of all nodes; empty if the caller may not list nodes."""
        if self._total is None:
            try:
                nodes = [decode.node(obj) for obj in self._frame.all(request.NODES)]
            except CliError:
                nodes = []
            total: dict[str, int] = {}
            for node in nodes:
                amounts.add(total, node.allocatable)
            self._total = total
        return self._total

    def _objective(self, log_records: Iterable[Record]) -> Record | None:
        own = [record for record in log_records if record.code == Observation.OBJECTIVE]
        if not own and self._frame.namespace not in (None, CLUSTER):
            own = [
                record
                for record in records.of_cluster(self._frame, only_current=True)
                if record.code == Observation.OBJECTIVE
            ]
        return own[-1] if own else None


def _services(frame: Frame, namespace: str | None) -> list[Pod]:
    """Returns the services that wait for capacity; empty if the caller may not list pods."""
    try:
        objects = frame.all(request.PODS, namespace, fields=_WAITING)
    except CliError:
        return []
    pods = (decode.pod(obj) for obj in objects)
    return [pod for pod in pods if not (pod.is_training or pod.gated or pod.deleting)]
