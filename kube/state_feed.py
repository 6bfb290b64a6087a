"""A `ClusterState` that follows the cluster: watches queue changes, its owner applies them.

The watch threads never touch the state, and its owner never waits for them: the newest change of
each object is queued until the owner drains the queue. So a plan that takes a second delays no
watch, and the queue is bounded by the number of objects.
"""

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from kube.cache import ClusterCache
from policy.cluster_state import ClusterState
from policy.snapshot import Job, Node, Pod

T = TypeVar("T", Pod, Node, Job)


@dataclass(frozen=True, slots=True)
class ObjectChange(Generic[T]):
    """The newest change of one object since the last drain."""

    last: T | None
    """The newest record before `new`; None for a new object."""
    new: T | None
    """The current record; None if the object is deleted."""


class ClusterStateFeed:
    """A `ClusterState` with a queue of changes that the watches fill.

    Only the queue is thread-safe: one owner drains it and reads the state.
    """

    def __init__(self, cache: ClusterCache) -> None:
        """Listens to `cache`; its present records arrive with the first drain."""
        self.cluster = ClusterState()
        self._cache = cache
        self._lock = cache.changes.condition
        self._pods: dict[str, ObjectChange[Pod]] = {}
        self._nodes: dict[str, ObjectChange[Node]] = {}
        self._jobs: dict[str, ObjectChange[Job]] = {}
        cache.pods.listen(self._pod_changed)
        cache.nodes.listen(self._node_changed)
        cache.jobs.listen(self._job_changed)

    def ignore(self, resources: frozenset[str]) -> None:
        """Leaves resources out of all requests; a change costs one update of each pod and job."""
        if resources == self.cluster.ignored:
            return
        self.cluster.ignored = resources
        for pod in self._cache.pods.records():
            if pod.uid in self.cluster.pods:
                self.cluster.put_pod(replace(self.cluster.pods[pod.uid], requests=pod.requests))
        for job in self._cache.jobs.records():
            current = self.cluster.jobs.get(job.key)
            if current is not None and current.uid == job.uid:
                self.cluster.put_job(replace(current, requests=job.requests))

    def drain(self) -> tuple[dict[str, ObjectChange[Pod]], dict[str, ObjectChange[Job]]]:
        """Applies the queued changes; returns those of pods and of jobs, by uid."""
        with self._lock:
            pods, nodes, jobs = self._pods, self._nodes, self._jobs
            self._pods, self._nodes, self._jobs = {}, {}, {}
        for name, node in nodes.items():
            if node.new is None:
                self.cluster.drop_node(name)
            else:
                self.cluster.put_node(node.new)
        for job in sorted(jobs.values(), key=lambda change: change.new is not None):
            self._enter_job(job)
        for uid, pod in pods.items():
            if pod.new is None:
                self.cluster.drop_pod(uid)
            else:
                self.cluster.put_pod(pod.new)
        return pods, jobs

    def _enter_job(self, job: ObjectChange[Job]) -> None:
        """Applies a job's change; a deletion must not drop a new Job of the same name."""
        if job.new is not None:
            self.cluster.put_job(job.new)
        elif job.last is not None:
            current = self.cluster.jobs.get(job.last.key)
            if current is not None and current.uid == job.last.uid:
                self.cluster.drop_job(job.last.key)

    # Called on the watch threads, with the lock held.

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        record = new or old
        if record is not None:
            self._pods[record.uid] = ObjectChange(old, new)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        record = new or old
        if record is not None:
            self._nodes[record.name] = ObjectChange(old, new)

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        record = new or old
        if record is not None:
            self._jobs[record.uid] = ObjectChange(old, new)
