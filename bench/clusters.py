"""Synthetic clusters of any size, as records: seeded, so that two runs measure the same thing.

The ratios are those of the issue: 10 pods a node, one job for 5 nodes. Nodes come in several
sizes, a tenth with GPUs of two types; services, system pods and the trainers of jobs fill them
to about 94 % of their CPU, shared between the jobs as max-min fairness would have it, so that a
plan finds a cluster at work and not a heap of pods.
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
    Shape,
    gpu_node,
    plain_node,
)
from policy.model import Fairness, Policy, Reserve
from policy.mutation import EDL_CLASSES
from policy.names import Role, Tier
from policy.placement import admits
from policy.snapshot import Job, Node, Phase, Pod, Resources, Snapshot

NOW_S = 1_800_000_000.0
"""When the cluster is looked at."""
PODS_PER_NODE = 10
NODES_PER_JOB = 5
SERVICES_PER_NODE = 4
QUEUE_WEIGHTS = {"gold": 4, "research": 2}
LOAD = 0.94
"""Share of all CPU that is requested in the end."""

_QUEUES = ("", "gold", "research", "batch")
_NAMESPACES = ("ml-vision", "ml-speech", "ml-text", "ml-ads", "ml-maps")
_SHOPS = ("shop", "search", "feed", "billing")
_GPU_EVERY = 10
_WAITING_EVERY = 200
"""Of so many nodes' worth of pods, one service and one trainer wait for a node."""
_LEAVING_EVERY = 50
_FEWEST, _MOST = 2, 60
_DECK = tuple(shape for shape in TRAINERS for _ in range(shape.share))
"""Dealt and not drawn, so that a small cluster has the mix of a large one."""


def policy() -> Policy:
    """The rules that the benchmarks decide by."""
    return Policy(
        reserve=Reserve(max_load={"cpu": LOAD + 0.01}),
        fairness=Fairness(queue_weights=QUEUE_WEIGHTS),
    )


def cluster(nodes: int, seed: int = 1) -> Snapshot:
    """A cluster of so many nodes, ten pods for each, and a job for every five."""
    return _Maker(nodes, Random(seed)).make()  # noqa: S311 - repeatable on purpose


@dataclass(slots=True)
class _Crew:
    """The trainers of one job while they are handed out."""

    job: Job
    shape: Shape
    step: float
    """What one more trainer adds to the job's weighted share."""
    count: int = 0


class _Maker:
    """Fills nodes from what is free there; a node found too full for a shape stays so."""

    def __init__(self, nodes: int, random: Random) -> None:
        self._random = random
        self._nodes = tuple(self._node(number) for number in range(nodes))
        self._free = {node.name: dict(node.allocatable) for node in self._nodes}
        self._cpu = sum(node.allocatable["cpu"] for node in self._nodes)
        self._used_cpu = 0
        self._places: dict[Shape, list[str]] = {}
        self._pods: list[Pod] = []
        self._most_pods = nodes * PODS_PER_NODE
        self._waiting = max(1, nodes // _WAITING_EVERY)

    def make(self) -> Snapshot:
        """All records; pods and nodes are shuffled, since their order means nothing."""
        for node in self._nodes:
            for shape in SYSTEM:
                self._take(node.name, shape.requests)
                self._add(f"{shape.name}-{node.name}", "kube-system", shape, node.name)
        for _ in range(len(self._nodes) * SERVICES_PER_NODE):
            self._serve(self._random.choices(SERVICES, [s.share for s in SERVICES])[0])
        crews = self._jobs()
        self._train(crews)
        self._wait(crews)
        while len(self._pods) < self._most_pods and self._serve(SMALL_SERVICE):
            pass
        self._leave()
        self._random.shuffle(self._pods)
        return Snapshot(self._nodes, tuple(self._pods), tuple(crew.job for crew in crews))

    def _node(self, number: int) -> Node:
        if number % _GPU_EVERY == 0:
            return gpu_node(number, kind=number // _GPU_EVERY % 2)
        return plain_node(number, self._random.choice(PLAIN_SIZES))

    # Jobs and their trainers

    def _jobs(self) -> list[_Crew]:
        count = max(1, len(self._nodes) // NODES_PER_JOB)
        totals = self._totals()
        return [self._crew(number, totals) for number in range(count)]

    def _totals(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for node in self._nodes:
            for name, amount in node.allocatable.items():
                totals[name] = totals.get(name, 0) + amount
        return totals

    def _crew(self, number: int, totals: Resources) -> _Crew:
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
        return _Crew(job, shape, dominant / (job.weight * QUEUE_WEIGHTS.get(queue, 1)))

    def _train(self, crews: list[_Crew]) -> None:
        """One trainer at a time to the job with the least share, until the cluster is full."""
        for crew in crews:
            while crew.count < crew.job.min_trainers and self._grow(crew):
                pass
        order = [(crew.step * crew.count, place) for place, crew in enumerate(crews)]
        heapify(order)
        while order and self._has_room():
            _, place = heappop(order)
            crew = crews[place]
            if crew.count < crew.job.max_trainers and self._grow(crew):
                heappush(order, (crew.step * crew.count, place))

    def _has_room(self) -> bool:
        most = self._most_pods - 2 * self._waiting
        return len(self._pods) < most and self._used_cpu < LOAD * self._cpu

    def _grow(self, crew: _Crew) -> bool:
        where = self._place(crew.shape)
        if where:
            self._pods.append(trainer(crew.job, crew.count, where))
            crew.count += 1
        return bool(where)

    # Services and the rest

    def _serve(self, shape: Shape) -> bool:
        where = self._place(shape)
        if where:
            name = f"{shape.name}-{len(self._pods):06}"
            self._add(name, self._random.choice(_SHOPS), shape, where)
        return bool(where)

    def _wait(self, crews: list[_Crew]) -> None:
        """Services and trainers that have no node yet."""
        for number in range(self._waiting):
            shape = self._random.choice(SERVICES)
            self._add(f"waiting-{number:03}", self._random.choice(_SHOPS), shape)
            crew = self._random.choice([c for c in crews if c.count < c.job.max_trainers])
            self._pods.append(trainer(crew.job, crew.count, created_s=NOW_S - 1))
            crew.count += 1

    def _leave(self) -> None:
        """Some pods are on their way out."""
        bound = [place for place, pod in enumerate(self._pods) if pod.namespace != "kube-system"]
        for place in self._random.sample(bound, len(self._nodes) // _LEAVING_EVERY):
            if self._pods[place].node:
                self._pods[place] = replace(self._pods[place], deleting=True)

    def _add(self, name: str, namespace: str, shape: Shape, where: str = "") -> None:
        began_s = NOW_S - self._random.randint(60, 400_000) if where else NOW_S - 1
        self._pods.append(service(name, namespace, shape, where, began_s=began_s))

    # Room

    def _place(self, shape: Shape) -> str:
        """A random node where `shape` fits, taken; "" where there is none."""
        places = self._places.get(shape)
        if places is None:
            places = [n.name for n in self._nodes if admits(n, shape.constraints) is None]
            self._places[shape] = places
        while places:
            at = self._random.randrange(len(places))
            free = self._free[places[at]]
            if all(free.get(name, 0) >= amount for name, amount in shape.requests.items()):
                self._take(places[at], shape.requests)
                return places[at]
            places[at] = places[-1]
            places.pop()
        return ""

    def _take(self, node: str, requests: Resources) -> None:
        free = self._free[node]
        for name, amount in requests.items():
            free[name] -= amount
        self._used_cpu += requests["cpu"]


def service(
    name: str, namespace: str, shape: Shape, where: str = "", *, began_s: float = NOW_S
) -> Pod:
    """A pod that is no training: at work on node `where`, or waiting."""
    return Pod(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        requests=shape.requests,
        priority=shape.priority,
        node=where,
        phase=Phase.RUNNING if where else Phase.PENDING,
        ready=bool(where),
        created_s=began_s,
        started_s=began_s if where else 0.0,
        constraints=shape.constraints,
    )


def trainer(
    owner: Job,
    number: int,
    where: str = "",
    *,
    tier: Tier | None = None,
    created_s: float | None = None,
) -> Pod:
    """A trainer of a job, guaranteed while its number is below the job's minimum."""
    if tier is None:
        tier = Tier.GUARANTEED if number < owner.min_trainers else Tier.SURPLUS
    values = EDL_CLASSES[f"edl-{tier}"]
    began_s = owner.created_s + 10 * number if created_s is None else created_s
    return Pod(
        namespace=owner.namespace,
        name=f"{owner.name}-trainer-{number}",
        uid=f"{owner.uid}-{number:05}",
        requests=owner.requests,
        priority=values.value,
        preempts=values.preemption_policy != "Never",
        node=where,
        phase=Phase.RUNNING if where else Phase.PENDING,
        ready=bool(where),
        created_s=began_s,
        started_s=began_s if where else 0.0,
        owner_uid=owner.uid,
        job=owner.name,
        role=Role.TRAINER,
        tier=tier,
        trainer_id=number,
        constraints=owner.constraints,
    )
