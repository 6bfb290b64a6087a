"""The cluster as the page shows it: a thread follows the watches and updates the rows that streams send.

The cluster state is of the same kind as the planner's (`kube.state_feed`); records and the history of jobs come
from the decision logs. Nothing is stored. The history of the cluster's use starts with this process, because the logs
contain decisions only.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

import orjson

from kube.cache import ClusterCache
from kube.state_feed import ClusterStateFeed
from page import job_page, rows
from page.record_logs import RecordLogs
from page.record_query import LoggedRecord, RecordQuery
from page.series import FINE_S, Point, TrainerSteps, UsageSeries
from page.table import Row, RowTable
from policy.cluster.cluster_state import job_key
from policy.cluster.snapshot import Job
from policy.document.model import Policy
from policy.reasons import Observation

log = logging.getLogger(__name__)

_GATHER_S = 0.2
"""Time during which changes are gathered for one update."""
_IDLE_S = 1.0
"""Interval of updates if nothing changes."""
_MAX_BURSTS = 500
_MAX_RECORDS = 5_000
"""Number of newest records kept in memory for streams; older records are read from their segments."""
_JOB_RECORDS = 1_000
"""Number of a job's newest records that the job's page uses."""
_STOP_S = 5.0


class ClusterView:
    """The rows of jobs, nodes and bursts, the newest records, and the use of the cluster over time.

    One thread updates it; locks guard what other threads read. `version` increases with each update.
    """

    def __init__(
        self,
        cache: ClusterCache,
        logs: RecordLogs,
        policy: Callable[[], Policy],
        epoch_s: Callable[[], float],
    ) -> None:
        """Initializes the cluster view.

        Args:
            cache: Watches of nodes, pods and jobs.
            logs: The decision logs, whose watch shares the lock of `cache`.
            policy: Returns the policy in effect.
            epoch_s: Returns the seconds since the epoch.
        """
        self.version = 0
        self.jobs, self.nodes, self.bursts = RowTable(), RowTable(), RowTable()
        self.resources: tuple[str, ...] = ()
        self._resources_version = 0
        self.updated_s = 0.0
        """Time of the last update."""
        self.epoch_s = epoch_s
        self._cache, self._logs, self._policy = cache, logs, policy
        self._feed = ClusterStateFeed(cache, epoch_s)
        self._cluster = self._feed.cluster
        self._lock = threading.Lock()
        """Guards the cluster state and everything derived from it, except for the tables."""
        self._followed: Policy | None = None
        self._allocatable: dict[str, int] = {}
        self._node_versions: dict[str, int] = {}
        self._job_versions: dict[str, int] = {}
        self._records: deque[tuple[int, LoggedRecord]] = deque(maxlen=_MAX_RECORDS)
        self._usage, self._usage_version = UsageSeries(), 0
        self._usage_s = 0.0
        self._amounts: list[list[int]] = []
        self._counts: dict[str, Any] = {}
        """Numbers of nodes and of waiting pods when the newest point of the use was recorded."""
        self._objective: bytes = b"null"
        self._objective_version = 0
        self._steps = TrainerSteps()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)

    # Methods for the owner's thread.

    @property
    def ready(self) -> bool:
        """Whether the first lists are complete and have been applied."""
        return self.version > 0

    def start(self) -> None:
        """Starts to follow the watches."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread. Stop the watches first; otherwise, the thread may wait for their next change."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        version = 0
        while not self._stopping.is_set():
            version = self._cache.wait_change(version, _IDLE_S, _GATHER_S)
            try:
                self.update()
            except Exception:  # a bug must not end the view; the next change tries again
                log.exception("could not update the view")
                self._stopping.wait(_IDLE_S)

    def update(self) -> None:
        """Applies the changes from the watches; does nothing until the first lists are complete."""
        if not (self._cache.synced and self._logs.reflector.synced):
            return
        version, now_s = self.version + 1, self.epoch_s()
        with self._lock:
            changed = self._take_in()
            self._put_nodes(version)
            self._put_jobs(changed, version, now_s)
            self._put_usage(version, now_s)
        self.version, self.updated_s = version, now_s

    def _take_in(self) -> Collection[str]:
        """Applies the changes; returns the keys of jobs whose rows may have changed."""
        policy = self._policy()
        is_new = policy is not self._followed
        if is_new:
            self._feed.follow(policy)
            self._followed = policy
        pods, jobs = self._feed.drain()
        changed = {
            job_key(pod)
            for change in pods.values()
            for pod in (change.last, change.new)
            if pod is not None and pod.job
        }
        changed |= {job.key for change in jobs.values() for job in (change.last, change.new) if job}
        changed |= self._put_records()
        if is_new:
            self._begin_nodes()  # the policy's node pools decide which trainers fit on which nodes
        if is_new or self._allocatable != self._cluster.allocatable:
            self._allocatable = dict(self._cluster.allocatable)
            return {*changed, *self._cluster.jobs}  # shares depend on the capacity of all nodes
        return changed

    def _put_records(self) -> set[str]:
        """Applies new records; returns the keys of jobs with a new decision."""
        new, changed = self._logs.drain()
        changed |= {logged.record.job for logged in new if logged.record.job}
        version = self.version + 1
        if not self.version:
            self._put_past_steps(new)
        for logged in new:
            self._records.append((version, logged))
            if logged.record.kind == "reclaim":
                key = f"{logged.namespace} {logged.record.name}"
                self.bursts.put(key, Row(version, logged.namespace, _json(rows.burst(logged))))
        self.bursts.drop_oldest(_MAX_BURSTS, version)
        objective = _json(rows.objective(self._logs.of_cluster(Observation.OBJECTIVE)))
        if objective != self._objective:
            self._objective, self._objective_version = objective, version
        return changed

    def _put_past_steps(self, logged: Iterable[LoggedRecord]) -> None:
        """Applies the decisions about jobs from before the start of this process, oldest first."""
        for record in job_page.targets(logged):
            job = self._cluster.jobs.get(record.name)
            if job is not None and record.at_s >= job.created_s:
                self._steps.put(job.key, record.at_s, record.figures["target"])

    def _put_jobs(self, keys: Iterable[str], version: int, now_s: float) -> None:
        for key in keys:
            job = self._cluster.jobs.get(key)
            if job is None:
                self.jobs.drop(key, version)
                self._steps.drop(key)
                self._job_versions.pop(key, None)
                continue
            row = rows.job(self._cluster, job, self._logs.current(key))
            self._steps.put(key, now_s, row["trainers"])
            self._job_versions[key] = version
            narrow = _json({**row, "share": None})
            self.jobs.put(key, Row(version, job.namespace, narrow, _json(row)))

    def _put_nodes(self, version: int) -> None:
        cluster = self._cluster
        names = rows.resources(cluster.allocatable)
        if names != self.resources:
            self.resources, self._resources_version = names, version
            self._begin_nodes()
            self._usage.clear()
        shown, versions = self._node_versions, cluster.versions
        for name in [name for name in shown if name not in cluster.nodes]:
            del shown[name]
            self.nodes.drop(name, version)
        for name, node in cluster.nodes.items():
            if shown.get(name) == versions.get(name, 0):
                continue
            shown[name] = versions.get(name, 0)
            pods = cluster.bound.get(name, {}).values()
            row, labels = rows.node(node, pods, names)
            self.nodes.put(name, Row(version, "", _json(row)[:-1], _json(labels)))

    def _begin_nodes(self) -> None:
        """Makes all readers of nodes start over."""
        self.nodes.clear(self.version + 1)
        self._node_versions.clear()

    def _put_usage(self, version: int, now_s: float) -> None:
        """Records the use of the cluster if it has changed, or if the newest point is old."""
        amounts = rows.usage(self._cluster, self.resources)
        counts = {"nodes": rows.nodes(self._cluster), "waiting": rows.waiting(self._cluster)}
        is_same = (amounts, counts) == (self._amounts, self._counts)
        if is_same and 0.0 <= now_s - self._usage_s < FINE_S:
            return
        self._usage_s, self._usage_version = now_s, version
        self._amounts, self._counts = amounts, counts
        self._usage.put(now_s, amounts)

    # Methods for readers, on any thread.

    @property
    def namespaces(self) -> frozenset[str]:
        """Returns the namespaces that have elastic jobs or records."""
        return frozenset(row.namespace for _, row in self.jobs.all()) | self._logs.namespaces

    def usage(self, since: int | None) -> dict[str, Any] | None:
        """Returns the cluster's present use, or None if it is unchanged; a new reader also gets the use so far."""
        with self._lock:
            if since is not None and self._usage_version <= since:
                return None
            if since is not None and since < self._resources_version:
                since = None
            points: list[Point] = self._usage.points()
            values: dict[str, Any] = {
                "at": self._usage_s,
                **self._counts,
                "points": points if since is None else points[-1:],
            }
            if since is None:
                values |= {"reset": True, "resources": self.resources}
            return values

    def objective(self, since: int | None) -> bytes | None:
        """Returns the objective's standing as JSON, or None if there is no change since `since`."""
        if since is not None and self._objective_version <= since:
            return None
        return self._objective

    def records(self, since: int) -> list[LoggedRecord]:
        """Returns the records that arrived after a version and are still in memory."""
        with self._lock:
            newest = []
            for version, logged in reversed(self._records):
                if version <= since:
                    break
                newest.append(logged)
        return newest[::-1]

    def history(
        self, query: RecordQuery, sees: Callable[[str], bool]
    ) -> tuple[list[LoggedRecord], bool]:
        """Returns the records that match a query; see `RecordLogs.history`."""
        return self._logs.history(query, sees)

    def job_version(self, key: str) -> int:
        """Returns the version of a job's last change, or 0 if the job does not exist."""
        return self._job_versions.get(key, 0)

    def job(self, key: str, sees: Callable[[str], bool], *, shares: bool) -> dict[str, Any] | None:
        """Returns the contents of a job's page, or None if the job does not exist.

        Args:
            key: namespace/name.
            sees: Returns whether the caller may see a namespace's records.
            shares: Whether the caller may see shares of the cluster.
        """
        with self._lock:
            job = self._cluster.jobs.get(key)
            if job is None:
                return None
            record = self._logs.current(key)
            document = job_page.document(self._cluster, job, record, shares=shares)
            steps = self._steps.of(key)
        logged, _ = self._logs.history(RecordQuery(job=key, limit=_JOB_RECORDS), sees)
        return {"at": self.epoch_s(), **document, **job_page.history(key, logged, steps)}

    def master(self, key: str) -> tuple[Job, str] | None:
        """Returns a job and its master's address ("" if unknown), or None if the job has no EDL master."""
        with self._lock:
            job = self._cluster.jobs.get(key)
            if job is None or not job.edl_master:
                return None
            return job, job_page.master_address(self._cluster, job)

    def series(self, keys: list[str], limit: int) -> dict[str, list[tuple[float, int]]]:
        """Returns the history of trainer counts of the jobs that have the most trainers."""
        with self._lock:
            return self._steps.largest(keys, limit)

    def fits(self, key: str) -> tuple[dict[str, int], dict[str, int]] | None:
        """Returns how many further trainers of a job fit on each node, or None for an unknown job.

        The first dict has the numbers for now, the second one those for a cluster without surplus trainers.
        """
        with self._lock:
            job = self._cluster.jobs.get(key)
            if job is None:
                return None
            pools = self._policy().node_pools
            now = self._cluster.slots(job.requests, job.constraints, pools, surplus=True)
            without_surplus = self._cluster.slots(job.requests, job.constraints, pools)
            return dict(now.counts), dict(without_surplus.counts)

    def node(self, name: str) -> dict[str, Any] | None:
        """Returns the contents of a node's page, or None if the node does not exist."""
        with self._lock:
            node = self._cluster.nodes.get(name)
            if node is None:
                return None
            pods = list(self._cluster.bound.get(name, {}).values())
        row, _ = rows.node(node, pods, self.resources)
        pods.sort(key=lambda pod: (not pod.is_training, pod.namespace, pod.name))
        return {
            "name": name,
            "flags": row[1],
            "resources": self.resources,
            "amounts": row[2],
            "labels": dict(node.labels),
            "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in node.taints],
            "podCount": len(pods),
            "pods": [job_page.node_pod(pod) for pod in pods[: job_page.MAX_MEMBERS]],
        }


def _json(value: object) -> bytes:
    return orjson.dumps(value)
