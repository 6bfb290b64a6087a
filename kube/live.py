"""A `policy.Index` that follows the cluster: watches put changes in, its owner takes them out.

The watch threads never touch the index, and its owner never waits for them: changes are kept,
the newest for each object, until the owner drains them. So a plan of a second delays no watch,
and what waits is bounded by the number of objects.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from kube.cache import ClusterCache
from policy.index import Index
from policy.snapshot import Job, Node, Pod

T = TypeVar("T", Pod, Node, Job)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What became of one object since the last drain."""

    last: T | None
    """The newest record that was not yet, or is not any more, the present one."""
    new: T | None
    """As it is now; None if it is gone."""


class LiveIndex:
    """Not thread-safe but for the watches that feed it: one owner drains and reads."""

    def __init__(self, cache: ClusterCache) -> None:
        """Listens to `cache`; what it holds already arrives with the first drain."""
        self.index = Index()
        self._lock = cache.changes.condition
        self._pods: dict[str, Change[Pod]] = {}
        self._nodes: dict[str, Change[Node]] = {}
        self._jobs: dict[str, Change[Job]] = {}
        cache.pods.listen(self._pod_changed)
        cache.nodes.listen(self._node_changed)
        cache.jobs.listen(self._job_changed)

    def drain(self) -> tuple[dict[str, Change[Pod]], dict[str, Change[Job]]]:
        """Brings the index up to date; what changed, by uid."""
        with self._lock:
            pods, nodes, jobs = self._pods, self._nodes, self._jobs
            self._pods, self._nodes, self._jobs = {}, {}, {}
        for name, node in nodes.items():
            if node.new is None:
                self.index.drop_node(name)
            else:
                self.index.put_node(node.new)
        for job in sorted(jobs.values(), key=lambda change: change.new is not None):
            self._enter_job(job)
        for uid, pod in pods.items():
            if pod.new is None:
                self.index.drop_pod(uid)
            else:
                self.index.put_pod(pod.new)
        return pods, jobs

    def _enter_job(self, job: Change[Job]) -> None:
        """Endings come first, so that a Job made again under a name is not dropped for the old."""
        if job.new is not None:
            self.index.put_job(job.new)
        elif job.last is not None:
            current = self.index.jobs.get(job.last.key)
            if current is not None and current.uid == job.last.uid:
                self.index.drop_job(job.last.key)

    # Called on the watch threads, with the lock held.

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        record = new or old
        if record is not None:
            self._pods[record.uid] = Change(old, new)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        record = new or old
        if record is not None:
            self._nodes[record.name] = Change(old, new)

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        record = new or old
        if record is not None:
            self._jobs[record.uid] = Change(old, new)
