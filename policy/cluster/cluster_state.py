"""The cluster as decisions see it: records, and sums over them that would be slow to recompute.

The watch cache passes every change to the state, so that a change of one pod costs one update and
not a recount. Extender and reconciler each keep one state; a plan reads it and never writes to it.
The state is not thread-safe: its owner must hold a lock.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from math import inf

from policy.cluster import amounts
from policy.cluster.first_seen import FirstSeen
from policy.cluster.fits import Fits, Prices
from policy.cluster.live_trainers import LiveTrainers, have_same_trainers, is_surplus, live_trainers
from policy.cluster.overcommit import as_written
from policy.cluster.placement import Packing, admits
from policy.cluster.queues import QueueRules
from policy.cluster.quota_amounts import of_pods
from policy.cluster.slots import Slots
from policy.cluster.snapshot import Constraints, Job, Node, Pod, Resources, Snapshot
from policy.cluster.usable_capacity import UsableCapacity
from policy.cluster.usage import Usage
from policy.document.model import NodePool, Policy
from policy.names import Role


class ClusterState:
    """Nodes, pods and jobs by key, with amounts per node and trainers per job."""

    queues = QueueRules()
    """The rules that assign a queue to each job added from now on."""
    overcommit: Callable[[Job], Job] = staticmethod(as_written)
    """Applies the policy's overcommit to each job added from now on; idempotent."""
    ignored: frozenset[str] = frozenset()
    """Resources that are left out of the requests of pods and jobs added from now on."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.restricted: dict[str, Node] = {}
        """The nodes that are cordoned, tainted or not ready: few, and every plan checks them all."""
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, Pod] = {}
        """uid -> each pod that holds or requests capacity, and each terminal pod of a job."""
        self.used: dict[str, dict[str, int]] = {}
        """Node -> requests of its bound pods that have not ended, including terminating ones."""
        self.available: dict[str, dict[str, int]] = {}
        """Node -> allocatable minus `used`, as the scheduler counts it; may be negative."""
        self.releasing: dict[str, dict[str, int]] = {}
        """Node -> requests of its pods that are being deleted."""
        self.surplus: dict[str, dict[str, int]] = {}
        """Node -> requests of its surplus trainers that are not being deleted."""
        self.bound: dict[str, dict[str, Pod]] = {}
        """Node -> uid -> its bound pods that have not ended."""
        self.waiting: dict[str, Pod] = {}  # uid -> pods that wait for a node
        self.leaving: dict[str, Pod] = {}
        """uid -> bound pods that are being deleted."""
        self.resizing: dict[str, Pod] = {}
        """uid -> bound pods whose resize is deferred, because their node lacks the capacity."""
        self.members: dict[str, dict[str, Pod]] = {}
        """Job key -> uid -> its trainer pods, terminal ones included."""
        self.master_hosts: dict[str, dict[str, Pod]] = {}
        """Job key -> uid -> pods that host the job's master and are not being deleted."""
        self.servers: dict[str, dict[str, Pod]] = {}
        """Job key -> uid -> the job's parameter servers that EDL created, in any state."""
        self.owned: dict[str, dict[str, Pod]] = {}
        """namespace/controller uid -> uid -> its pods that EDL did not create, whatever their labels."""
        self.allocatable: dict[str, int] = {}  # sum over all nodes
        self.usage = Usage()
        self.first_seen = FirstSeen()
        """When this process saw the changes of pods and nodes, by the clock used for decisions."""
        self._live_trainers: dict[str, LiveTrainers] = {}  # by job uid; kept until a pod changes
        self._trainer_amounts: dict[str, tuple[LiveTrainers, Resources]] = {}
        self._prices = Prices(self.nodes, self.available)
        self._usable = UsableCapacity(self.nodes, self.used)
        self._packing = Packing((), {})
        self._shapes_changed = False

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy | None = None) -> "ClusterState":
        """Returns the state of a whole snapshot, with the rules of a policy if one is given."""
        cluster = cls()
        if policy is not None:
            cluster.ignored = frozenset(policy.ignored_resources)
            cluster.queues = QueueRules.of(policy)
        for node in snapshot.nodes:
            cluster.put_node(node)
        for job in snapshot.jobs:
            cluster.put_job(job)
        for pod in snapshot.pods:
            cluster.put_pod(pod)
        return cluster

    def counted(self, requests: Resources) -> Resources:
        """Returns the requests without the ignored resources."""
        return {name: amount for name, amount in requests.items() if name not in self.ignored}

    def put_node(self, node: Node) -> None:
        """Adds or replaces a node."""
        self.drop_node(node.name)
        self.nodes[node.name] = node
        if node.unschedulable or node.taints or not node.ready:
            self.restricted[node.name] = node
        free = dict(node.allocatable)
        amounts.subtract(free, self.used.get(node.name, {}))
        self.available[node.name] = free
        amounts.add(self.allocatable, node.allocatable)
        self._shapes_changed = True
        self._prices.changes.add(node.name, exists=True)

    def drop_node(self, name: str) -> None:
        """Removes a node; an unknown name is ignored."""
        old = self.nodes.pop(name, None)
        if old is not None:
            self.restricted.pop(name, None)
            del self.available[name]
            amounts.subtract(self.allocatable, old.allocatable)
            self._shapes_changed = True
            self._prices.changes.add(name, exists=False)

    @property
    def missing_nodes(self) -> frozenset[str]:
        """Names of nodes that have pods but do not exist."""
        return frozenset(self.bound.keys() - self.nodes.keys())

    def put_job(self, job: Job) -> None:
        """Adds or replaces a job."""
        old, trainers = self.jobs.get(job.key), self._live_trainers.get(job.uid)
        self.drop_job(job.key)
        job = self.overcommit(self.queues.applied(job))
        if not self.ignored.isdisjoint(job.requests):
            job = replace(job, requests=self.counted(job.requests))
        self.jobs[job.key] = job
        if old is not None and trainers is not None and have_same_trainers(old, job):
            self._live_trainers[job.uid] = trainers

    def drop_job(self, key: str) -> None:
        """Removes a job; an unknown key is ignored."""
        old = self.jobs.pop(key, None)
        if old is not None:
            self._live_trainers.pop(old.uid, None)
            self._trainer_amounts.pop(old.uid, None)
        self._shapes_changed = True

    def put_pod(self, pod: Pod) -> None:
        """Adds or replaces a pod; only the pod's scheduler knows whether it lacks ignored resources."""
        self.drop_pod(pod.uid)
        if not self.ignored.isdisjoint(pod.requests):
            pod = replace(pod, requests=self.counted(pod.requests), only_resources=False)
        self.pods[pod.uid] = pod
        if pod.role is Role.TRAINER and pod.job:
            self.members.setdefault(job_key(pod), {})[pod.uid] = pod
        elif pod.role is Role.PSERVER and pod.server >= 0:
            self.servers.setdefault(job_key(pod), {})[pod.uid] = pod
        if pod.owner_uid and pod.trainer_id < 0 and pod.server < 0:
            self.owned.setdefault(_owner_key(pod), {})[pod.uid] = pod
        self._live_trainers.pop(pod.owner_uid, None)
        self._note_shape(pod)
        if pod.terminal:
            return
        if pod.master and pod.job and not pod.deleting:
            self.master_hosts.setdefault(job_key(pod), {})[pod.uid] = pod
        if pod.node:
            self._bind(pod)
        elif not pod.deleting:
            self.waiting[pod.uid] = pod

    def _bind(self, pod: Pod) -> None:
        self.bound.setdefault(pod.node, {})[pod.uid] = pod
        amounts.add(self.used.setdefault(pod.node, {}), pod.requests)
        self.usage.add(pod)
        if pod.resize and not pod.deleting:
            self.resizing[pod.uid] = pod
        if pod.deleting:
            self.leaving[pod.uid] = pod
            amounts.add(self.releasing.setdefault(pod.node, {}), pod.requests)
        elif is_surplus(pod):
            amounts.add(self.surplus.setdefault(pod.node, {}), pod.requests)
        if pod.node in self.nodes:
            amounts.subtract(self.available[pod.node], pod.requests)
            self._prices.changes.add(pod.node, exists=True, replaced=False)

    def drop_pod(self, uid: str) -> None:
        """Removes a pod; an unknown uid is ignored."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self._live_trainers.pop(pod.owner_uid, None)
        self._note_shape(pod)
        self.waiting.pop(uid, None)
        _remove(self.members, job_key(pod), uid)
        _remove(self.master_hosts, job_key(pod), uid)
        _remove(self.servers, job_key(pod), uid)
        _remove(self.owned, _owner_key(pod), uid)
        if uid in self.bound.get(pod.node, {}):
            self._unbind(pod)

    def _unbind(self, pod: Pod) -> None:
        _remove(self.bound, pod.node, pod.uid)
        self.resizing.pop(pod.uid, None)
        _subtract(self.used, pod)
        self.usage.remove(pod)
        if self.leaving.pop(pod.uid, None):
            _subtract(self.releasing, pod)
        elif is_surplus(pod):
            _subtract(self.surplus, pod)
        if pod.node in self.nodes:
            amounts.add(self.available[pod.node], pod.requests)
            self._prices.changes.add(pod.node, exists=True, replaced=False)

    def free(self, name: str) -> dict[str, int]:
        """Returns a copy of a node's current free capacity; amounts may be negative."""
        return self.available[name].copy()

    def fits_beside(self, requests: Resources, name: str, promised: Resources) -> bool:
        """Returns whether such a pod fits on a node now, beside the amounts that are promised to others."""
        free = self.free(name)
        amounts.subtract(free, promised)
        return amounts.within(requests, free)

    @property
    def versions(self) -> Mapping[str, int]:
        """Node -> version of its free capacity; the version grows with every change."""
        return self._prices.changes.versions

    @property
    def packing(self) -> Packing:
        """The packing for the trainer shapes in use."""
        if self._shapes_changed:
            jobs = ((job, self.live_trainers(job)) for job in self.jobs.values())
            new, old = _packing(jobs, self.allocatable), self._packing
            if (new.shapes, new.worths) != (old.shapes, old.worths):
                self._packing = new
            self._shapes_changed = False
        return self._packing

    def _note_shape(self, pod: Pod) -> None:
        job = self.jobs.get(job_key(pod)) if pod.role is Role.TRAINER else None
        if job is not None and pod.requests != job.requests:
            self._shapes_changed = True

    def open_nodes(
        self, constraints: Constraints, pools: tuple[NodePool, ...] = ()
    ) -> Collection[str]:
        """Returns the nodes that admit such a pod, unordered; `pools` limits only trainers."""
        if not constraints.only_node:
            names = self._prices.open_nodes(constraints.shared, pools).names
            return names.difference(constraints.avoided) if constraints.avoided else names
        node = self.nodes.get(constraints.only_node)
        return (node.name,) if node is not None and admits(node, constraints, pools) is None else ()

    def fits(
        self, requests: Resources, constraints: Constraints, pools: tuple[NodePool, ...] = ()
    ) -> Fits:
        """Returns the nodes that such a pod fits on now, with their costs; valid until the next change.

        The first call for a shape prices every node; later calls price only the changed nodes.
        """
        self._prices.pack_by(self.packing)
        return self._prices.fits(requests, constraints, pools)

    def largest(self, constraints: Constraints, pools: tuple[NodePool, ...] = ()) -> Resources:
        """Returns resource -> largest allocatable amount of one node, among the nodes that admit such a pod."""
        return self._prices.open_nodes(constraints, pools).largest(self.nodes, self._prices.changes)

    def fits_empty_node(
        self, requests: Resources, constraints: Constraints, pools: tuple[NodePool, ...] = ()
    ) -> bool:
        """Returns whether such a pod would fit on a node that admits it and that is empty."""
        slots = self._prices.slots(requests, constraints, pools, self._allocatable_of)
        return slots.total > 0

    def _allocatable_of(self, name: str) -> Resources:
        return self.nodes[name].allocatable

    def slots(
        self,
        requests: Resources,
        constraints: Constraints,
        pools: tuple[NodePool, ...] = (),
        *,
        surplus: bool = False,
    ) -> Slots:
        """Returns how many such pods each node could run without its leaving pods and surplus trainers.

        With `surplus`, the surplus trainers stay. The counts are an upper bound: pods that leave late or
        not at all count as gone too. They are valid until the next change.
        """
        room = self._free_later if surplus else self._most_free
        return self._prices.slots(requests, constraints, pools, room)

    def _free_later(self, name: str) -> Resources:
        free, leaving = self.available[name], self.releasing.get(name)
        return amounts.plus(free, leaving) if leaving else free

    def _most_free(self, name: str) -> Resources:
        free, surplus = self._free_later(name), self.surplus.get(name)
        return amounts.plus(free, surplus) if surplus else free

    def live_trainers(self, job: Job) -> LiveTrainers:
        """Returns the live trainers of this Job object (not of an earlier one), in order of loss.

        Trainers of a job that the built-in controller runs have no tier label; the oldest `min`
        of them count as guaranteed and the others as surplus.
        """
        trainers = self._live_trainers.get(job.uid)
        if trainers is None:
            members = self.members.get(job.key, {})
            if not job.managed:
                members = self.owned.get(f"{job.namespace}/{job.uid}", {})
            trainers = self._live_trainers[job.uid] = live_trainers(job, members.values())
        return trainers

    def trainer_amounts(self, job: Job) -> Resources:
        """Returns what a job's live trainers count against quotas; cached until a trainer changes."""
        trainers = self.live_trainers(job)
        known, total = self._trainer_amounts.get(job.uid, (None, {}))
        if known is not trainers:
            total = of_pods(job, trainers.pods)
            self._trainer_amounts[job.uid] = trainers, total
        return total

    def trainers(self, job: Job) -> tuple[Pod, ...]:
        """Returns the live trainers of a job (bound or waiting, not deleting); see `live_trainers`."""
        return self.live_trainers(job).pods

    def count_placed(self, uids: Iterable[str]) -> int:
        """Returns how many of these trainers exist and have a node."""
        return sum(1 for uid in uids if (pod := self.pods.get(uid)) is not None and pod.node)

    def master_host(self, job: Job) -> Pod | None:
        """Returns the pod that hosts the job's master and is not being deleted, or None.

        A pod with the role master comes before a trainer. Of several pods the youngest is returned,
        because its master has stopped the others.
        """
        hosts = [
            pod
            for pod in self.master_hosts.get(job.key, {}).values()
            if pod.role is Role.MASTER or pod.owner_uid == job.uid
        ]
        return max(hosts, key=lambda p: (p.role is Role.MASTER, p.trainer_id, p.uid), default=None)

    def servers_of(self, job: Job) -> list[Pod]:
        """Returns the parameter servers of this Job object, including ended ones and ones being deleted."""
        pods = self.servers.get(job.key)
        return [pod for pod in pods.values() if pod.owner_uid == job.uid] if pods else []

    def counted_servers(self, job: Job) -> list[Pod]:
        """Returns the servers that count as the job's, if their pods hold or request capacity."""
        live = [p for p in self.servers_of(job) if not (p.terminal or p.deleting)]
        return live[: self.server_count(job)]

    def server_count(self, job: Job) -> int:
        """Returns the number of parameter servers that count as the job's: all requested ones, or 0.

        From the job's first pod on, all servers count, even while one is missing: the capacity of a
        missing server stays reserved for its replacement.
        """
        if job.servers is None or not job.managed or job.stopped:
            return 0
        return job.servers.count if self.trainers(job) or self.servers_of(job) else 0

    def usable(self, pools: tuple[NodePool, ...] = (), now_s: float = inf) -> UsableCapacity:
        """Returns the nodes in the pools that trainers may use, with sums; valid until the next change.

        By default only ready nodes count.
        """
        self._usable.refresh(self.jobs.values(), pools, self._prices.changes, now_s)
        return self._usable

    def share(self, job: Job, trainers: int, weights: Mapping[str, int]) -> float:
        """Returns the weighted dominant share of the cluster that `trainers` of a job use.

        Args:
            job: The job.
            trainers: Number of its trainers.
            weights: Queue -> weight.
        """
        weight = job.weight * weights.get(job.queue, 1)
        return trainers * amounts.dominant(job.requests, self.allocatable) / weight

    def servers_share(self, job: Job, weights: Mapping[str, int]) -> float:
        """Returns the share of the job's parameter servers; 0 if it requests none."""
        if job.servers is None:
            return 0.0
        share = amounts.dominant(job.servers.requests, self.allocatable)
        return job.servers.count * share / (job.weight * weights.get(job.queue, 1))


def job_key(pod: Pod) -> str:
    """Returns the key of the job that a pod belongs to."""
    return f"{pod.namespace}/{pod.job}"


def _owner_key(pod: Pod) -> str:
    """Returns a pod's namespace and controller uid: a controller owns only pods in its namespace."""
    return f"{pod.namespace}/{pod.owner_uid}"


def _remove(groups: dict[str, dict[str, Pod]], key: str, uid: str) -> None:
    """Removes a pod from a group, and removes the group if it is empty then."""
    group = groups.get(key)
    if group is not None and group.pop(uid, None) is not None and not group:
        del groups[key]


def _subtract(sums: dict[str, dict[str, int]], pod: Pod) -> None:
    """Subtracts a pod's requests from its node's sum, and removes a sum of 0."""
    total = sums.setdefault(pod.node, {})
    amounts.subtract(total, pod.requests)
    if not any(total.values()):
        del sums[pod.node]


def _packing(jobs: Iterable[tuple[Job, LiveTrainers]], total: Resources) -> Packing:
    """Returns the packing for the trainers of these jobs, the most requested shape first.

    Args:
        jobs: The jobs, with their live trainers.
        total: Allocatable of the cluster.
    """
    requested: Counter[tuple[tuple[str, int], ...]] = Counter()
    for job, trainers in jobs:
        if not job.over and not job.error:
            requested[tuple(sorted(_shape(job, trainers).items()))] += job.max_trainers
    shapes = sorted(requested, key=lambda shape: (-requested[shape], shape))
    return Packing([dict(shape) for shape in shapes], total)


def _shape(job: Job, trainers: LiveTrainers) -> Resources:
    """Returns the requests of one trainer, which may be larger in the newest pod than in the template.

    Only the reconciler asks the API server for a dry run; the extender learns the real size from pods.
    """
    newest = trainers.newest
    return job.requests if newest is None else amounts.largest(job.requests, newest.requests)
