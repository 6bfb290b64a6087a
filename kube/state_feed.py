"""A `ClusterState` that follows the cluster: watches queue changes, and the state's owner applies them.

The watch threads never touch the state, and the owner never waits for them: the newest change of each object
is queued until the owner calls `drain`. So a plan that takes a second does not delay a watch, and the length
of the queue is limited by the number of objects.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from kube import podspec
from kube.cache import ClusterCache
from kube.object_change import ObjectChange
from policy.admission import unstructured
from policy.cluster import overcommit
from policy.cluster.cluster_state import ClusterState
from policy.cluster.queues import QueueRules
from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy
from policy.document.queue_model import Overcommit
from runtime import clock
from runtime.logs import keys

log = logging.getLogger(__name__)

T = TypeVar("T", Pod, Node, Job)


class ClusterStateFeed:
    """A `ClusterState` with a queue of changes that the watches fill.

    Only the queue is thread-safe: a single owner calls `drain` and reads the state.
    """

    def __init__(self, cache: ClusterCache, epoch_s: Callable[[], float] = clock.epoch_s) -> None:
        """Subscribes to `cache`; the first `drain` applies the records that the cache already has.

        Args:
            cache: The watches.
            epoch_s: Returns the seconds since the epoch, by this process's clock.
        """
        self.cluster = ClusterState()
        self._cache = cache
        self._epoch_s = epoch_s
        self._overcommit: tuple[Overcommit, ...] = ()
        """The policy's rules for requests below limits."""
        self._listed = True
        """Whether the next `drain` may return records from before the start of this process."""
        self._lock = cache.changes.condition
        self._pods: dict[str, ObjectChange[Pod]] = {}
        self._nodes: dict[str, ObjectChange[Node]] = {}
        self._jobs: dict[str, ObjectChange[Job]] = {}
        cache.pods.listen(self._pod_changed)
        cache.nodes.listen(self._node_changed)
        cache.jobs.listen(self._job_changed)

    def follow(self, policy: Policy) -> None:
        """Applies the parts of a policy that change records: ignored resources, queues and overcommit.

        If these parts have changed, every pod and job is updated once.
        """
        resources, queues = frozenset(policy.ignored_resources), QueueRules.of(policy)
        before = self.cluster.ignored, self.cluster.queues, self._overcommit
        if (resources, queues, policy.overcommit) == before:
            return
        self.cluster.ignored, self.cluster.queues = resources, queues
        self._overcommit = policy.overcommit
        self.cluster.overcommit = partial(overcommitted, policy.overcommit)
        for pod in self._cache.pods.records():
            if pod.uid in self.cluster.pods:
                self.cluster.put_pod(replace(self.cluster.pods[pod.uid], requests=pod.requests))
        for job in self._cache.jobs.records():
            current = self.cluster.jobs.get(job.key)
            if current is not None and current.uid == job.uid:
                as_written = replace(current, queue=job.queue, weight=job.weight, error=job.error)
                amounts = replace(as_written, requests=job.requests, limits=job.limits)
                self.cluster.put_job(replace(amounts, template_json=job.template_json))

    def drain(self) -> tuple[dict[str, ObjectChange[Pod]], dict[str, ObjectChange[Job]]]:
        """Applies the queued changes; returns the changes of pods and the changes of jobs, by uid.

        Only the records in the cluster state have times of this process's clock; the returned records lack them.
        """
        synced = self._cache.synced
        with self._lock:
            pods, nodes, jobs = self._pods, self._nodes, self._jobs
            self._pods, self._nodes, self._jobs = {}, {}, {}
        for node in nodes.values():
            self._enter(self._enter_node, node)
        for job in sorted(jobs.values(), key=lambda change: change.new is not None):
            self._enter(self._enter_job, job)
        for pod in pods.values():
            self._enter(self._enter_pod, pod)
        self._listed = self._listed and not synced
        return pods, jobs

    def _enter(self, enter: Callable[[ObjectChange[T]], None], change: ObjectChange[T]) -> None:
        """Applies the change of one object; after an error, only this object is missing from the state."""
        try:
            enter(change)
        except Exception:
            record = change.new or change.last
            log.exception(
                "change of an object failed: it is left out of the cluster state",
                extra=keys(uid=getattr(record, "uid", "")),
            )

    def _enter_node(self, node: ObjectChange[Node]) -> None:
        first_seen = self.cluster.first_seen
        if node.new is not None:
            new = first_seen.put_node(node.new, node.seen_s, listed=self._listed)
            self.cluster.put_node(new)
        elif node.last is not None:
            self.cluster.drop_node(node.last.name)
            first_seen.drop_node(node.last.name)

    def _enter_pod(self, pod: ObjectChange[Pod]) -> None:
        first_seen = self.cluster.first_seen
        if pod.new is not None:
            self.cluster.put_pod(first_seen.put_pod(pod.new, pod.seen_s, listed=self._listed))
        elif pod.last is not None:
            self.cluster.drop_pod(pod.last.uid)
            first_seen.drop_pod(pod.last.uid)

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
            self._pods[record.uid] = ObjectChange(old, new, self._epoch_s())

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        record = new or old
        if record is not None:
            self._nodes[record.name] = ObjectChange(old, new, self._epoch_s())

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        record = new or old
        if record is not None:
            self._jobs[record.uid] = ObjectChange(old, new, self._epoch_s())


def overcommitted(rules: Iterable[Overcommit], job: Job) -> Job:
    """Returns a job with the pod template from which its trainers are created, and with its amounts."""
    lowered = overcommit.lowered(job, overcommit.ratios_of(rules, job.namespace, job.queue))
    if lowered is job:
        return job
    spec = unstructured.mapping(lowered.template, "spec")
    return replace(lowered, requests=podspec.requests(spec), limits=podspec.limits(spec))
