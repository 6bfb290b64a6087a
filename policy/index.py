"""The cluster as decisions look at it: records with the sums that would be slow to recount.

Fed by the watch cache, one change at a time, so that a change of one pod costs one update and
not a recount. Extender and reconciler each keep one; a plan reads it and never writes to it.
Not thread-safe: its owner locks.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from policy import amounts
from policy.crew import Crew, crew, is_surplus
from policy.fits import Fits, Prices
from policy.model import NodePool
from policy.names import Role
from policy.placement import Packing
from policy.snapshot import Constraints, Job, Node, Pod, Resources, Snapshot


class Index:
    """Nodes, pods and jobs by key, with amounts per node and trainers per job."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, Pod] = {}
        """uid -> every pod that holds or wants capacity, and terminal ones of jobs."""
        self.used: dict[str, dict[str, int]] = {}
        """Node -> requests of the pods bound there that have not ended (terminating included)."""
        self.available: dict[str, dict[str, int]] = {}
        """Node -> allocatable less used, by the scheduler's count; may be negative."""
        self.coming: dict[str, dict[str, int]] = {}
        """Node -> requests of the pods there that are on their way out."""
        self.surplus: dict[str, dict[str, int]] = {}
        """Node -> requests of the surplus trainers there that stay."""
        self.bound: dict[str, dict[str, Pod]] = {}
        """Node -> uid -> the pods bound there that have not ended."""
        self.waiting: dict[str, Pod] = {}
        """uid -> pods without a node that still want one."""
        self.leaving: dict[str, Pod] = {}
        """uid -> pods on a node that are on their way out."""
        self.members: dict[str, dict[str, Pod]] = {}
        """Job key -> uid -> its trainer pods, terminal ones included."""
        self.carriers: dict[str, dict[str, Pod]] = {}
        """Job key -> uid -> pods that carry the job's master and stay."""
        self.servers: dict[str, dict[str, Pod]] = {}
        """Job key -> uid -> the job's parameter servers that EDL made, in whatever state."""
        self.owned: dict[str, dict[str, Pod]] = {}
        """Controller uid -> uid -> its pods without a role: those of Jobs that are not ours."""
        self.allocatable: dict[str, int] = {}
        """Sum over all nodes."""
        self._in_use: dict[str, int] = {}
        self._crews: dict[str, Crew] = {}
        """Job uid -> its crew, until a pod of it changes."""
        self._prices = Prices(self.nodes, self.available)
        self._packing = Packing((), {})
        self._shapes_changed = False

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
        used = self.used.get(node.name, {})
        free = dict(node.allocatable)
        amounts.subtract(free, used)
        self.available[node.name] = free
        amounts.add(self.allocatable, node.allocatable)
        self._shapes_changed = True
        amounts.add(self._in_use, used)
        self._prices.touched.add(node.name, exists=True)

    def drop_node(self, name: str) -> None:
        """A node that is gone; unknown names are fine."""
        old = self.nodes.pop(name, None)
        if old is not None:
            del self.available[name]
            amounts.subtract(self.allocatable, old.allocatable)
            self._shapes_changed = True
            amounts.subtract(self._in_use, self.used.get(name, {}))
            self._prices.touched.add(name, exists=False)

    def put_job(self, job: Job) -> None:
        """A job that is new or changed."""
        self.drop_job(job.key)
        self.jobs[job.key] = job

    def drop_job(self, key: str) -> None:
        """A job that is gone; unknown keys are fine."""
        old = self.jobs.pop(key, None)
        if old is not None:
            self._crews.pop(old.uid, None)
        self._shapes_changed = True

    def put_pod(self, pod: Pod) -> None:
        """A pod that is new or changed."""
        self.drop_pod(pod.uid)
        self.pods[pod.uid] = pod
        if pod.role is Role.TRAINER and pod.job:
            self.members.setdefault(job_key(pod), {})[pod.uid] = pod
        elif pod.role is Role.PSERVER and pod.server >= 0:
            self.servers.setdefault(job_key(pod), {})[pod.uid] = pod
        elif pod.role is None and pod.owner_uid:
            self.owned.setdefault(pod.owner_uid, {})[pod.uid] = pod
        self._crews.pop(pod.owner_uid, None)
        if pod.terminal:
            return
        if pod.master and pod.job and not pod.deleting:
            self.carriers.setdefault(job_key(pod), {})[pod.uid] = pod
        if pod.node:
            self._bind(pod)
        elif not pod.deleting:
            self.waiting[pod.uid] = pod

    def _bind(self, pod: Pod) -> None:
        self.bound.setdefault(pod.node, {})[pod.uid] = pod
        amounts.add(self.used.setdefault(pod.node, {}), pod.requests)
        if pod.deleting:
            self.leaving[pod.uid] = pod
            amounts.add(self.coming.setdefault(pod.node, {}), pod.requests)
        elif is_surplus(pod):
            amounts.add(self.surplus.setdefault(pod.node, {}), pod.requests)
        if pod.node in self.nodes:
            amounts.subtract(self.available[pod.node], pod.requests)
            amounts.add(self._in_use, pod.requests)
            self._prices.touched.add(pod.node, exists=True)

    def drop_pod(self, uid: str) -> None:
        """A pod that is gone; unknown uids are fine."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self._crews.pop(pod.owner_uid, None)
        self.waiting.pop(uid, None)
        _remove(self.members, job_key(pod), uid)
        _remove(self.carriers, job_key(pod), uid)
        _remove(self.servers, job_key(pod), uid)
        _remove(self.owned, pod.owner_uid, uid)
        if uid in self.bound.get(pod.node, {}):
            self._unbind(pod)

    def _unbind(self, pod: Pod) -> None:
        _remove(self.bound, pod.node, pod.uid)
        _take_back(self.used, pod)
        if self.leaving.pop(pod.uid, None):
            _take_back(self.coming, pod)
        elif is_surplus(pod):
            _take_back(self.surplus, pod)
        if pod.node in self.nodes:
            amounts.add(self.available[pod.node], pod.requests)
            amounts.subtract(self._in_use, pod.requests)
            self._prices.touched.add(pod.node, exists=True)

    def free(self, name: str) -> dict[str, int]:
        """What is free on a node now, for the caller to change; may be negative."""
        return self.available[name].copy()

    @property
    def stamps(self) -> Mapping[str, int]:
        """Node -> a number that grows with every change of what is free there."""
        return self._prices.touched.stamps

    @property
    def packing(self) -> Packing:
        """The packing for the trainer shapes in use."""
        if self._shapes_changed:
            self._shapes_changed = False
            found = packing(self.jobs.values(), self.allocatable)
            kept = self._packing
            if (found.shapes, found.worths) != (kept.shapes, kept.worths):
                self._packing = found
        return self._packing

    def open_nodes(
        self, constraints: Constraints, pools: tuple[NodePool, ...] = ()
    ) -> Collection[str]:
        """The nodes that admit such a pod, in no order; `pools` only for trainers."""
        return self._prices.open_nodes(constraints, pools).names

    def fits(
        self, requests: Resources, constraints: Constraints, pools: tuple[NodePool, ...] = ()
    ) -> Fits:
        """Where such a pod fits now, and what each place costs; good until the next change.

        The first question about a shape prices each node, later ones what changed since.
        """
        self._prices.pack_by(self.packing)
        return self._prices.fits(requests, constraints, pools)

    def crew(self, job: Job) -> Crew:
        """The live trainers of this very Job object, in order of what is lost with them.

        Those of a job that the built-in controller runs carry no tier; the oldest `min` of them
        count as guaranteed and the others as surplus.
        """
        found = self._crews.get(job.uid)
        if found is None:
            pods = self.members.get(job.key, {}) if job.managed else self.owned.get(job.uid, {})
            found = self._crews[job.uid] = crew(job, pods.values())
        return found

    def trainers(self, job: Job) -> tuple[Pod, ...]:
        """The live trainers of a job (bound or waiting, not deleting); see `crew`."""
        return self.crew(job).live

    def carrier(self, job: Job) -> Pod | None:
        """The pod that carries the job's master and stays: one of role master before a trainer.

        Should there be several, the youngest, for its master has stopped the others.
        """
        own = [
            pod
            for pod in self.carriers.get(job.key, {}).values()
            if pod.role is Role.MASTER or pod.owner_uid == job.uid
        ]
        return max(own, key=lambda p: (p.role is Role.MASTER, p.trainer_id, p.uid), default=None)

    def servers_of(self, job: Job) -> list[Pod]:
        """The parameter servers of this very Job object, those that have ended or leave included."""
        found = self.servers.get(job.key)
        return [pod for pod in found.values() if pod.owner_uid == job.uid] if found else []

    def serving(self, job: Job) -> int:
        """How many parameter servers count as the job's: all or none.

        All from its first pod on, though one may be missing for a moment: what it left is not for
        others.
        """
        if job.servers is None or not job.managed or job.stopped:
            return 0
        return job.servers.count if self.trainers(job) or self.servers_of(job) else 0

    def total_used(self) -> dict[str, int]:
        """Requests of all bound pods on nodes that exist."""
        return {name: amount for name, amount in self._in_use.items() if amount}

    def share(self, job: Job, trainers: int, weights: Mapping[str, int]) -> float:
        """The weighted dominant share that `trainers` of a job take of the cluster.

        Args:
            job: Whose requests and weight count.
            trainers: How many.
            weights: Queue -> weight.
        """
        weight = job.weight * weights.get(job.queue, 1)
        return trainers * amounts.dominant(job.requests, self.allocatable) / weight

    def servers_share(self, job: Job, weights: Mapping[str, int]) -> float:
        """What the job's parameter servers add to its share; 0 where it asks for none.

        Args:
            job: Whose.
            weights: Queue -> weight.
        """
        if job.servers is None:
            return 0.0
        one = amounts.dominant(job.servers.requests, self.allocatable)
        return job.servers.count * one / (job.weight * weights.get(job.queue, 1))


def packing(jobs: Iterable[Job], total: Resources) -> Packing:
    """The packing for the trainer shapes in use, most wanted first."""
    wanted: Counter[tuple[tuple[str, int], ...]] = Counter()
    for job in jobs:
        if not job.over and not job.error:
            wanted[tuple(sorted(job.requests.items()))] += job.max_trainers
    shapes = sorted(wanted, key=lambda shape: (-wanted[shape], shape))
    return Packing([dict(shape) for shape in shapes], total)


def job_key(pod: Pod) -> str:
    """Key of the job a pod belongs to."""
    return f"{pod.namespace}/{pod.job}"


def _remove(groups: dict[str, dict[str, Pod]], key: str, uid: str) -> None:
    """Takes a pod out of a group, and the group away with its last pod."""
    group = groups.get(key)
    if group is not None and group.pop(uid, None) is not None and not group:
        del groups[key]


def _take_back(sums: dict[str, dict[str, int]], pod: Pod) -> None:
    """Takes a pod's requests out of its node's sum, and the sum away with its last amount."""
    total = sums.setdefault(pod.node, {})
    amounts.subtract(total, pod.requests)
    if not any(total.values()):
        del sums[pod.node]
