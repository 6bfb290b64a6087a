"""The cluster as decisions look at it: records with the sums that would be slow to recount.

Fed by the watch cache, one change at a time, so that a change of one pod costs one update and
not a recount. Extender and reconciler each keep one; a plan reads it and never writes to it.
Not thread-safe: its owner locks.
"""

from collections.abc import Mapping
from dataclasses import replace

from policy import amounts
from policy.names import Role, Tier
from policy.snapshot import Job, Node, Pod, Snapshot


class Index:
    """Nodes, pods and jobs by key, with used amounts per node and trainers per job."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, Pod] = {}
        """uid -> every pod that holds or wants capacity, and terminal ones of jobs."""
        self.used: dict[str, dict[str, int]] = {}
        """Node -> requests of the pods bound there that have not ended (terminating included)."""
        self.bound: dict[str, dict[str, Pod]] = {}
        """Node -> uid -> those pods."""
        self.waiting: dict[str, Pod] = {}
        """uid -> pods without a node that still want one."""
        self.members: dict[str, dict[str, Pod]] = {}
        """Job key -> uid -> its trainer pods, terminal ones included."""
        self.owned: dict[str, dict[str, Pod]] = {}
        """Controller uid -> uid -> its pods without a role: those of Jobs that are not ours."""
        self.allocatable: dict[str, int] = {}
        """Sum over all nodes."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Index":
        """An index of a whole snapshot."""
        index = cls()
        for node in snapshot.nodes:
            index.put_node(node)
        for job in snapshot.jobs:
            index.put_job(job)
        for pod in snapshot.pods:
            index.put_pod(pod)
        return index

    def put_node(self, node: Node) -> None:
        """A node that is new or changed."""
        self.drop_node(node.name)
        self.nodes[node.name] = node
        amounts.add(self.allocatable, node.allocatable)

    def drop_node(self, name: str) -> None:
        """A node that is gone; unknown names are fine."""
        old = self.nodes.pop(name, None)
        if old is not None:
            amounts.subtract(self.allocatable, old.allocatable)

    def put_job(self, job: Job) -> None:
        """A job that is new or changed."""
        self.jobs[job.key] = job

    def drop_job(self, key: str) -> None:
        """A job that is gone; unknown keys are fine."""
        self.jobs.pop(key, None)

    def put_pod(self, pod: Pod) -> None:
        """A pod that is new or changed."""
        self.drop_pod(pod.uid)
        self.pods[pod.uid] = pod
        if pod.role is Role.TRAINER and pod.job:
            self.members.setdefault(job_key(pod), {})[pod.uid] = pod
        elif pod.role is None and pod.owner_uid:
            self.owned.setdefault(pod.owner_uid, {})[pod.uid] = pod
        if pod.terminal:
            return
        if pod.node:
            amounts.add(self.used.setdefault(pod.node, {}), pod.requests)
            self.bound.setdefault(pod.node, {})[pod.uid] = pod
        elif not pod.deleting:
            self.waiting[pod.uid] = pod

    def drop_pod(self, uid: str) -> None:
        """A pod that is gone; unknown uids are fine."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self.waiting.pop(uid, None)
        members = self.members.get(job_key(pod))
        if members is not None:
            members.pop(uid, None)
            if not members:
                del self.members[job_key(pod)]
        owned = self.owned.get(pod.owner_uid)
        if owned is not None:
            owned.pop(uid, None)
            if not owned:
                del self.owned[pod.owner_uid]
        here = self.bound.get(pod.node)
        if here is not None and uid in here:
            del here[uid]
            amounts.subtract(self.used[pod.node], pod.requests)
            if not here:
                del self.bound[pod.node], self.used[pod.node]

    def free(self, name: str) -> dict[str, int]:
        """What is free on a node now, by the scheduler's count; may be negative."""
        free = dict(self.nodes[name].allocatable)
        amounts.subtract(free, self.used.get(name, {}))
        return free

    def trainers(self, job: Job) -> list[Pod]:
        """The live trainers that belong to this very Job object (bound or waiting, not deleting).

        Those of a job that the built-in controller runs carry no tier; the oldest `min` of them
        count as guaranteed and the others as surplus.
        """
        if not job.managed:
            return self._plain_trainers(job)
        return [
            pod
            for pod in self.members.get(job.key, {}).values()
            if pod.owner_uid == job.uid and not pod.terminal and not pod.deleting
        ]

    def _plain_trainers(self, job: Job) -> list[Pod]:
        live = sorted(
            (
                pod
                for pod in self.owned.get(job.uid, {}).values()
                if not pod.terminal and not pod.deleting
            ),
            key=lambda pod: (not pod.node, pod.created_s, pod.uid),
        )
        tiers = [
            Tier.GUARANTEED if i < job.min_trainers else Tier.SURPLUS for i in range(len(live))
        ]
        return [
            replace(pod, role=Role.TRAINER, tier=tier)
            for pod, tier in zip(live, tiers, strict=True)
        ]

    def total_used(self) -> dict[str, int]:
        """Requests of all bound pods on nodes that exist."""
        total: dict[str, int] = {}
        for name, used in self.used.items():
            if name in self.nodes:
                amounts.add(total, used)
        return total

    def share(self, job: Job, trainers: int, weights: Mapping[str, int]) -> float:
        """The weighted dominant share that `trainers` of a job take of the cluster.

        Args:
            job: Whose requests and weight count.
            trainers: How many.
            weights: Queue -> weight.
        """
        weight = job.weight * weights.get(job.queue, 1)
        return trainers * amounts.dominant(job.requests, self.allocatable) / weight


def job_key(pod: Pod) -> str:
    """Key of the job a pod belongs to."""
    return f"{pod.namespace}/{pod.job}"


def is_surplus(pod: Pod) -> bool:
    """Whether a pod is the first to give way."""
    return pod.role is Role.TRAINER and pod.tier is Tier.SURPLUS
