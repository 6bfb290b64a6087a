"""The API server of virtual time: objects, and who is told when they change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from policy.index import Index
from policy.snapshot import Job, Node, Phase, Pod
from simulator.clock import Clock


class Why(StrEnum):
    """Why a pod was told to stop: reasons of the condition DisruptionTarget."""

    PREEMPTED = "PreemptionByScheduler"
    EVICTED = "EvictionByEvictionAPI"


@dataclass(frozen=True, slots=True)
class Change:
    """A pod came (`old` is None), changed, or went (`new` is None)."""

    at_s: float
    pod: Pod
    """As it is now, or as it last was."""
    old: Pod | None
    gone: bool = False
    why: Why | None = None
    """Why it is leaving, once it is."""

    @property
    def new(self) -> Pod | None:
        """As it is now."""
        return None if self.gone else self.pod


class Cluster:
    """Pods, jobs and nodes, as everybody sees them at once: watches have no delay here."""

    def __init__(self, clock: Clock, nodes: Iterable[Node]) -> None:
        self.clock = clock
        self.index = Index()
        self._why: dict[str, Why] = {}
        self._pod_watchers: list[Callable[[Change], None]] = []
        self._job_watchers: list[Callable[[Job], None]] = []
        for node in nodes:
            self.index.put_node(node)

    def watch_pods(self, tell: Callable[[Change], None]) -> None:
        """Tells of every change of a pod from now on."""
        self._pod_watchers.append(tell)

    def watch_jobs(self, tell: Callable[[Job], None]) -> None:
        """Tells of every new job."""
        self._job_watchers.append(tell)

    def submit(self, job: Job) -> None:
        """A job comes."""
        job = replace(job, created_s=self._stamp())
        self.index.put_job(job)
        for tell in self._job_watchers:
            tell(job)

    def create(self, pod: Pod) -> None:
        """A pod comes."""
        self._put(replace(pod, created_s=self._stamp()))

    def bind(self, uid: str, node: str) -> None:
        """kube-scheduler has chosen."""
        self._put(replace(self.index.pods[uid], node=node, nominated=""))

    def nominate(self, uid: str, node: str) -> None:
        """kube-scheduler has made room there."""
        self._put(replace(self.index.pods[uid], nominated=node))

    def run(self, uid: str) -> None:
        """A pod's containers run."""
        pod = self.index.pods[uid]
        self._put(replace(pod, phase=Phase.RUNNING, ready=True, started_s=self._stamp()))

    def stop(self, uid: str, why: Why) -> None:
        """A pod is told to stop; one without a node is gone at once. Unknown uids are fine."""
        pod = self.index.pods.get(uid)
        if pod is None or pod.deleting:
            return
        self._why[uid] = why
        self._put(replace(pod, deleting=True, disrupted=True))
        if not pod.node:
            self.remove(uid)

    def remove(self, uid: str) -> None:
        """A pod's containers have ended."""
        pod = self.index.pods[uid]
        self.index.drop_pod(uid)
        self._tell(Change(self.clock.now_s, pod, pod, gone=True, why=self._why.pop(uid, None)))

    def _put(self, pod: Pod) -> None:
        old = self.index.pods.get(pod.uid)
        self.index.put_pod(pod)
        self._tell(Change(self.clock.now_s, pod, old, why=self._why.get(pod.uid)))

    def _tell(self, change: Change) -> None:
        for tell in self._pod_watchers:
            tell(change)

    def _stamp(self) -> float:
        """Timestamps of the API have whole seconds."""
        return float(int(self.clock.now_s))
