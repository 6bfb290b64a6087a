"""Synthetic clusters of any size, as records; seeded, so that two runs measure the same cluster.

The required ratios are 10 pods per node and one job per 5 nodes. Nodes have several sizes, a tenth
of them GPUs of two types. Services, system pods and trainers request about 94 % of the CPU;
trainers are distributed to jobs by max-min fairness, as in a cluster in operation.
"""

from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from random import Random

from bench.shapes import (
    PLAIN_SIZES,
    SERVICES,
    SMALL_SERVICE,
    SYSTEM,
    TRAINERS,
    PodShape,
    gpu_node,
    plain_node,
)
from policy.cluster.placement import admits
from policy.cluster.snapshot import Job, Node, Phase, Pod, Resources, Snapshot
from policy.document.model import Fairness, Policy, Reserve
from policy.names import Role, Tier
from policy.priority_classes import CLASS_OF, EDL_CLASSES

NOW_S = 1_800_000_000.0
"""The time of the snapshot."""
PODS_PER_NODE = 10
NODES_PER_JOB = 5
SERVICES_PER_NODE = 4
QUEUE_WEIGHTS = {"gold": 4, "research": 2}
LOAD = 0.94
"""The final share of requested CPU."""

_QUEUES = ("", "gold", "research", "batch")
_NAMESPACES = ("ml-vision", "ml-speech", "ml-text", "ml-ads", "ml-maps")
_SHOPS = ("shop", "search", "feed", "billing")
_GPU_EVERY = 10
_WAITING_EVERY = 200
"""One service and one trainer per this many nodes wait for a node."""
_TERMINATING_EVERY = 50
_FEWEST, _MOST = 2, 60
_DECK = tuple(shape for shape in TRAINERS for _ in range(shape.share))
"""Assigned in turn, not at random, so that a small cluster has the mix of a large one."""


def policy() -> Policy:
    """Returns the policy of the benchmarks."""
    return Policy(
        reserve=Reserve(max_load={"cpu": LOAD + 0.01}),
        fairness=Fairness(queue_weights=QUEUE_WEIGHTS),
    )


def cluster(nodes: int, seed: int = 1) -> Snapshot:
    """Generates a cluster with ten pods per node and one job per five nodes."""
    return _ClusterBuilder(nodes, Random(seed)).make()  # noqa: S311 - repeatable on purpose


@dataclass(slots=True)
class _TrainerGroup:
    """The trainers of one job during the distribution."""

    job: Job
    shape: PodShape
    step: float
    """The weighted share of one trainer."""
    count: int = 0


class _ClusterBuilder:
    """A generator that fills nodes; a node that is too full for a shape is not tried again."""

    def __init__(self, nodes: int, random: Random) -> None:
        self._random = random
        self._nodes = tuple(self._node(number) for number in range(nodes))
        self._free = {node.name: dict(node.allocatable) for node in self._nodes}
        self._cpu = sum(node.allocatable["cpu"] for node in self._nodes)
        self._used_cpu = 0
        self._candidates: dict[PodShape, list[str]] = {}
        self._pods: list[Pod] = []
        self._most_pods = nodes * PODS_PER_NODE
        self._waiting = max(1, nodes // _WAITING_EVERY)

    def make(self) -> Snapshot:
        """Generates all records; pods are shuffled, because their order has no meaning."""
        for node in self._nodes:
            for shape in SYSTEM:
                self._reserve(node.name, shape.requests)
                self._add(f"{shape.name}-{node.name}", "kube-system", shape, node.name)
        for _ in range(len(self._nodes) * SERVICES_PER_NODE):
            self._add_service(self._random.choices(SERVICES, [s.share for s in SERVICES])[0])
        groups = self._jobs()
        self._distribute_trainers(groups)
        self._add_waiting_pods(groups)
        while len(self._pods) < self._most_pods and self._add_service(SMALL_SERVICE):
            pass
        self._mark_terminating()
        self._random.shuffle(self._pods)
        return Snapshot(self._nodes, tuple(self._pods), tuple(group.job for group in groups))

    def _node(self, number: int) -> Node:
        if number % _GPU_EVERY == 0:
            return gpu_node(number, kind=number // _GPU_EVERY % 2)
        return plain_node(number, self._random.choice(PLAIN_SIZES))

    # Jobs and their trainers

    def _jobs(self) -> list[_TrainerGroup]:
        count = max(1, len(self._nodes) // NODES_PER_JOB)
        totals = self._totals()
        return [self._group(number, totals) for number in range(count)]

    def _totals(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for node in self._nodes:
            for name, amount in node.allocatable.items():
                totals[name] = totals.get(name, 0) + amount
        return totals

    def _group(self, number: int, totals: Resources) -> _TrainerGroup:
        random = self._random
        shape = _DECK[number % len(_DECK)]
        queue = random.choice(_QUEUES)
        low = random.randint(_FEWEST, 4)
        job = Job(
            namespace=random.choice(_NAMESPACES),
            name=f"train-{number:04}",
            uid=f"job-{number:04}",
            min_trainers=low,
            max_trainers=random.randint(low, _MOST),
            requests=shape.requests,
            constraints=shape.constraints,
            weight=random.choice((1, 1, 1, 2)),
            queue=queue,
            created_s=NOW_S - random.randint(3_600, 400_000),
            resource_version="1",
        )
        dominant = max(amount / totals[name] for name, amount in shape.requests.items())
        return _TrainerGroup(job, shape, dominant / (job.weight * QUEUE_WEIGHTS.get(queue, 1)))

    def _distribute_trainers(self, groups: list[_TrainerGroup]) -> None:
        """Adds trainers, one at a time to the job with the smallest share, until the cluster is full."""
        for group in groups:
            while group.count < group.job.min_trainers and self._add_trainer(group):
                pass
        order = [(group.step * group.count, index) for index, group in enumerate(groups)]
        heapify(order)
        while order and self._has_free_capacity():
            _, index = heappop(order)
            group = groups[index]
            if group.count < group.job.max_trainers and self._add_trainer(group):
                heappush(order, (group.step * group.count, index))

    def _has_free_capacity(self) -> bool:
        most = self._most_pods - 2 * self._waiting
        return len(self._pods) < most and self._used_cpu < LOAD * self._cpu

    def _add_trainer(self, group: _TrainerGroup) -> bool:
        node = self._place(group.shape)
        if node:
            self._pods.append(trainer(group.job, group.count, node))
            group.count += 1
        return bool(node)

    # Services and the rest

    def _add_service(self, shape: PodShape) -> bool:
        node = self._place(shape)
        if node:
            name = f"{shape.name}-{len(self._pods):06}"
            self._add(name, self._random.choice(_SHOPS), shape, node)
        return bool(node)

    def _add_waiting_pods(self, groups: list[_TrainerGroup]) -> None:
        """Adds services and trainers that wait for a node."""
        for number in range(self._waiting):
            shape = self._random.choice(SERVICES)
            self._add(f"waiting-{number:03}", self._random.choice(_SHOPS), shape)
            group = self._random.choice([c for c in groups if c.count < c.job.max_trainers])
            self._pods.append(trainer(group.job, group.count, created_s=NOW_S - 1))
            group.count += 1

    def _mark_terminating(self) -> None:
        """Marks some pods as terminating."""
        bound = [index for index, pod in enumerate(self._pods) if pod.namespace != "kube-system"]
        for index in self._random.sample(bound, len(self._nodes) // _TERMINATING_EVERY):
            if self._pods[index].node:
                self._pods[index] = replace(self._pods[index], deleting=True)

    def _add(self, name: str, namespace: str, shape: PodShape, node: str = "") -> None:
        began_s = NOW_S - self._random.randint(60, 400_000) if node else NOW_S - 1
        self._pods.append(service(name, namespace, shape, node, began_s=began_s))

    # Capacity

    def _place(self, shape: PodShape) -> str:
        """Reserves capacity for `shape` on a random node; returns its name, or "" if none fits."""
        candidates = self._candidates.get(shape)
        if candidates is None:
            candidates = [n.name for n in self._nodes if admits(n, shape.constraints) is None]
            self._candidates[shape] = candidates
        while candidates:
            at = self._random.randrange(len(candidates))
            free = self._free[candidates[at]]
            if all(free.get(name, 0) >= amount for name, amount in shape.requests.items()):
                self._reserve(candidates[at], shape.requests)
                return candidates[at]
            candidates[at] = candidates[-1]
            candidates.pop()
        return ""

    def _reserve(self, node: str, requests: Resources) -> None:
        free = self._free[node]
        for name, amount in requests.items():
            free[name] -= amount
        self._used_cpu += requests["cpu"]


def service(
    name: str, namespace: str, shape: PodShape, node: str = "", *, began_s: float = NOW_S
) -> Pod:
    """A pod that is not training: running on `node`, or pending."""
    return Pod(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        requests=shape.requests,
        priority=shape.priority,
        node=node,
        phase=Phase.RUNNING if node else Phase.PENDING,
        ready=bool(node),
        created_s=began_s,
        started_s=began_s if node else 0.0,
        constraints=shape.constraints,
    )


def trainer(
    owner: Job,
    number: int,
    node: str = "",
    *,
    tier: Tier | None = None,
    created_s: float | None = None,
) -> Pod:
    """Returns a trainer of a job; guaranteed if its number is below the job's minimum."""
    if tier is None:
        tier = Tier.GUARANTEED if number < owner.min_trainers else Tier.SURPLUS
    values = EDL_CLASSES[CLASS_OF[tier]]
    began_s = owner.created_s + 10 * number if created_s is None else created_s
    return Pod(
        namespace=owner.namespace,
        name=f"{owner.name}-trainer-{number}",
        uid=f"{owner.uid}-{number:05}",
        requests=owner.requests,
        priority=values.value,
        preempts=values.preemption_policy != "Never",
        node=node,
        phase=Phase.RUNNING if node else Phase.PENDING,
        ready=bool(node),
        created_s=began_s,
        started_s=began_s if node else 0.0,
        owner_uid=owner.uid,
        job=owner.name,
        role=Role.TRAINER,
        tier=tier,
        trainer_id=number,
        constraints=owner.constraints,
    )
