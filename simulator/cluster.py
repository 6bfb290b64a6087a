"""The simulated API server: objects, and the watchers that are notified of their changes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Node, Phase, Pod
from simulator.clock import Clock


class DisruptionReason(StrEnum):
    """The reasons for deleting a pod, as in the condition DisruptionTarget."""

    PREEMPTED = "PreemptionByScheduler"
    EVICTED = "EvictionByEvictionAPI"


@dataclass(frozen=True, slots=True)
class PodChange:
    """An event of the pod watch: created (`old` is None), changed, or deleted (`new` is None)."""

    at_s: float
    pod: Pod
    """The current record, or the last record of a deleted pod."""
    old: Pod | None
    deleted: bool = False
    disruption: DisruptionReason | None = None
    """Why the pod is being deleted; None if it is not being deleted."""

    @property
    def new(self) -> Pod | None:
        """The current record; None if the pod was deleted."""
        return None if self.deleted else self.pod


class SimulatedCluster:
    """The objects of the simulated API server; watches have no delay."""

    def __init__(self, clock: Clock, nodes: Iterable[Node]) -> None:
        self.clock = clock
        self.state = ClusterState()
        self._disruptions: dict[str, DisruptionReason] = {}
        self._pod_watchers: list[Callable[[PodChange], None]] = []
        self._job_watchers: list[Callable[[Job], None]] = []
        for node in nodes:
            self.state.put_node(node)

    def watch_pods(self, listener: Callable[[PodChange], None]) -> None:
        """Calls `listener` for every change of a pod from now on."""
        self._pod_watchers.append(listener)

    def watch_jobs(self, listener: Callable[[Job], None]) -> None:
        """Calls `listener` for every new job from now on."""
        self._job_watchers.append(listener)

    def submit(self, job: Job) -> None:
        """Creates a job."""
        job = replace(job, created_s=self._stamp())
        self.state.put_job(job)
        for listener in self._job_watchers:
            listener(job)

    def end(self, job: Job) -> None:
        """Removes a job that has finished, with its pods; does nothing if it has ended already.

        A job's run time begins with its first start, even if that start was undone because there was no capacity
        for its other trainers.
        """
        if job.key not in self.state.jobs:
            return
        pods = self.state.trainers(self.state.jobs[job.key])
        self.state.drop_job(job.key)
        for pod in pods:
            self.remove(pod.uid)

    def create(self, pod: Pod) -> None:
        """Creates a pod."""
        self._put(replace(pod, created_s=self._stamp()))

    def bind(self, uid: str, node: str) -> None:
        """Binds a pod to a node."""
        self._put(replace(self.state.pods[uid], node=node, nominated=""))

    def nominate(self, uid: str, node: str) -> None:
        """Sets the nominated node of a pod."""
        self._put(replace(self.state.pods[uid], nominated=node))

    def run(self, uid: str) -> None:
        """Marks a pod as running and ready."""
        pod = self.state.pods[uid]
        self._put(replace(pod, phase=Phase.RUNNING, ready=True, started_s=self._stamp()))

    def stop(self, uid: str, reason: DisruptionReason) -> None:
        """Starts the deletion of a pod; a pod without a node is removed at once. Ignores unknown uids."""
        pod = self.state.pods.get(uid)
        if pod is None or pod.deleting:
            return
        self._disruptions[uid] = reason
        self._put(replace(pod, deleting=True, disrupted=True))
        if not pod.node:
            self.remove(uid)

    def remove(self, uid: str) -> None:
        """Removes a pod whose containers have ended."""
        pod = self.state.pods[uid]
        self.state.drop_pod(uid)
        self._notify(
            PodChange(
                self.clock.now_s,
                pod,
                pod,
                deleted=True,
                disruption=self._disruptions.pop(uid, None),
            )
        )

    def _put(self, pod: Pod) -> None:
        old = self.state.pods.get(pod.uid)
        self.state.put_pod(pod)
        self._notify(
            PodChange(self.clock.now_s, pod, old, disruption=self._disruptions.get(pod.uid))
        )

    def _notify(self, change: PodChange) -> None:
        for listener in self._pod_watchers:
            listener(change)

    def _stamp(self) -> float:
        """Returns the current time in whole seconds, like the API's timestamps."""
        return float(int(self.clock.now_s))
