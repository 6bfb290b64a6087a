"""Hypothesis strategies for clusters with everything in them that policies and nodes can have.

`tests.support.strategies` makes small plain ones, on which a failing case is easy to read.
"""

from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from policy.cluster.snapshot import (
    Constraints,
    Job,
    Node,
    Requirement,
    Snapshot,
    Taint,
    Toleration,
    TrainerAccounting,
)
from policy.document.model import (
    Fairness,
    FairnessBy,
    NodePool,
    Policy,
    Reserve,
    Sizes,
    Stability,
    Window,
)
from policy.document.queue_model import Quota
from policy.names import Tier
from tests.support.builders import NOW_S, job, node, service, shape, trainer
from tests.support.strategies import Case, somewhere

_T = TypeVar("_T")
_GPU = Taint("gpu", "yes", "NoSchedule")
_TOLERANT = (Toleration("gpu", "Exists", "", ""),)
GPU = "nvidia.com/gpu"
_TYPES = ("a", "h")


def wants(label: str, value: str) -> Constraints:
    """Nodes with a label only; taints of GPU nodes are tolerated."""
    return Constraints(((Requirement(label, "In", (value,)),),), _TOLERANT)


@st.composite
def nodes(draw: st.DrawFn, most: int = 5) -> list[Node]:
    """CPU nodes, memory-bound ones, and nodes of 8 GPUs of two types; some are closed."""
    drawn = []
    for i in range(draw(st.integers(1, most))):
        state = draw(st.integers(0, 11))
        gpu = draw(st.sampled_from(["", "", *_TYPES]))
        labels = {"zone": draw(st.sampled_from(["x", "y"]))} | ({"gpu": gpu} if gpu else {})
        drawn.append(
            node(
                f"n{i}",
                draw(st.integers(16, 40) if gpu else st.integers(2, 20)),
                memory=draw(st.sampled_from([8, 16, 64])),
                gpus=8 if gpu else 0,
                pods=draw(st.sampled_from([110, 110, 110, 5])),
                labels=labels,
                taints=(_GPU,) if gpu and draw(st.booleans()) else (),
                unschedulable=state == 0,
                ready=state != 1,
            )
        )
    return drawn


_CPU_SHAPES = st.sampled_from([(5, 0, 0), (4, 8, 0), (2, 0, 0), (1, 8, 0), (3, 4, 0)])
_GPU_SHAPES = st.sampled_from([(2, 0, 1), (4, 4, 2), (4, 0, 4), (1, 0, 8), (2, 0, 3)])


@st.composite
def jobs(draw: st.DrawFn, most: int = 4, *, plain: bool = False) -> list[Job]:
    """Jobs of several namespaces and queues, with limits, selectors and bad luck."""
    new_jobs = []
    for i in range(draw(st.integers(1, most))):
        low = draw(st.integers(1, 3))
        gpus = draw(st.integers(0, 2)) == 0
        requests = shape(*draw(_GPU_SHAPES if gpus else _CPU_SHAPES))
        anywhere = st.sampled_from([Constraints(), Constraints((), _TOLERANT), wants("zone", "x")])
        typed = st.sampled_from(_TYPES).map(lambda kind: wants("gpu", kind))
        managed = not plain or draw(st.integers(0, 3)) > 0
        new_jobs.append(
            job(
                f"j{i}",
                low,
                draw(st.integers(low, 8)),
                namespace=draw(st.sampled_from(["ml", "ml", "lab"])),
                requests=requests,
                limits=draw(st.sampled_from([{}, {"cpu": requests["cpu"] * 2}])),
                constraints=draw(typed if gpus else anywhere),
                weight=draw(st.sampled_from([1, 1, 1, 2, 5])),
                queue=draw(st.sampled_from(["", "night", "day"])),
                created_s=float(draw(st.integers(0, 50))),
                suspended=draw(st.integers(0, 11)) == 0,
                managed=managed,
                parallelism=0 if managed else draw(st.integers(0, 9)),
                accounting=draw(
                    st.sampled_from(
                        [TrainerAccounting()] * 9 + [TrainerAccounting(1, frozenset(), 1)]
                    )
                ),
            )
        )
    return new_jobs


_AMOUNTS = st.sampled_from(
    [{"cpu": "11"}, {"pods": "3"}, {"memory": "20Gi", "cpu": "30"}, {GPU: "5"}]
)
_SIZES = st.sampled_from(
    [
        Sizes(step=2),
        Sizes(powers_of_two=True),
        Sizes(allowed=(1, 3, 4)),
        Sizes(namespaces=("lab",), allowed=(2, 6)),
    ]
)
_WINDOWS = st.sampled_from(
    [
        Window.model_validate({"name": "holds", "start": "01:00", "end": "12:00", "maxLoad": load})
        for load in ({"cpu": 0.5}, {"cpu": 0.0}, {})
    ]
    + [
        Window.model_validate(
            {"name": "other", "start": "12:00", "end": "20:00", "maxLoad": {"cpu": 0.1}}
        )
    ]
)
"""The tests' time is 03:46 on a Friday."""


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Everything a policy can say."""
    queues = st.builds(Quota, queue=st.sampled_from(["night", "day"]), requests=_AMOUNTS)
    spaces = st.builds(
        Quota, namespace=st.just("lab"), limits=st.sampled_from([{"cpu": "16"}, {"memory": "9Gi"}])
    )
    pools = st.sampled_from([NodePool(name="x", labels={"zone": "x"}), NodePool(name="all")])
    return Policy(
        reserve=Reserve(
            max_load={"cpu": draw(st.sampled_from([1.0, 0.97, 0.8, 0.5]))},
            headroom=draw(st.sampled_from([{}, {}, {"cpu": "10%"}, {GPU: "1"}, {"memory": "4Gi"}])),
        ),
        fairness=Fairness(
            by=draw(st.sampled_from(FairnessBy)),
            queue_weights=draw(st.sampled_from([{}, {"night": 3}, {"night": 2, "day": 5}])),
        ),
        quotas=tuple(draw(st.lists(st.one_of(queues, spaces), max_size=2))),
        sizes=tuple(draw(st.lists(_SIZES, max_size=2))) if draw(st.booleans()) else (),
        windows=tuple(draw(st.lists(_WINDOWS, max_size=1))),
        stability=Stability(
            gain_threshold=draw(st.sampled_from([0.0, 0.1, 0.5])),
            max_moves=draw(st.sampled_from([0.1, 1.0])),
        ),
        node_pools=tuple(draw(st.lists(pools, max_size=1))) if draw(st.booleans()) else (),
    )


@st.composite
def cases(draw: st.DrawFn, *, plain: bool = False) -> Case:
    """Clusters in the middle of things: some of everything runs, waits and leaves."""
    drawn_nodes = draw(nodes())
    drawn_jobs = draw(jobs(plain=plain))
    room = {n.name: dict(n.allocatable) for n in drawn_nodes}
    pods = [
        somewhere(
            draw,
            room,
            service(f"s{i}", draw(st.integers(1, 9)), memory=draw(st.sampled_from([0, 2]))),
        )
        for i in range(draw(st.integers(0, 6)))
    ]
    for owner in drawn_jobs:
        for i in range(draw(st.integers(0, owner.max_trainers))):
            tier = Tier.GUARANTEED if i < owner.min_trainers else Tier.SURPLUS
            pod = trainer(owner, 100 + i, tier=tier)
            if not owner.managed:
                pod = replace(pod, role=None, tier=None, job="", priority=0)
            placed = somewhere(draw, room, pod)
            young = placed.node and draw(st.integers(0, 3)) == 0
            pods.append(replace(placed, started_s=NOW_S - 2) if young else placed)
    return Case(Snapshot(tuple(drawn_nodes), tuple(pods), tuple(drawn_jobs)), draw(policies()))


@st.composite
def with_odd_records(draw: st.DrawFn) -> Case:
    """A cluster with odd records among good ones: what a broken client or node can write."""
    case = draw(cases(plain=True))
    snapshot = case.snapshot
    odd_nodes = [Node("none", {}), Node("minus", {"cpu": -4000, "pods": -1}), Node("n0", shape(3))]
    first = snapshot.jobs[0]
    odd_jobs = [
        replace(first, name="vast", uid="vast", requests=shape(10**6, 10**6, 10**3)),
        replace(first, name="minus", uid="minus", requests={"cpu": -5000, "pods": 1}),
        replace(first, name="nothing", uid="nothing", requests={}),
        replace(first, name="zero", uid="zero", min_trainers=0, max_trainers=0),
        replace(first, name="wrong", uid="wrong", min_trainers=5, max_trainers=2),
        replace(first, name="error", uid="error", error="max is 'many'"),
        replace(first, uid="another object of that name"),
    ]
    odd_pods = [
        service("lost", 3, "no such node"),
        trainer(first, 7, "no such node"),
        service("minus", -4, "n0"),
        service("vast", 10**9),
        service("over", 10**4, "n0"),
        replace(service("twin", 1, "n0"), uid="uid-s0"),
        replace(trainer(first, 8, "n0"), trainer_id=-1, tier=None),
        service("nominated", 2, nominated="no such node"),
    ]

    def some(odd: list[_T]) -> tuple[_T, ...]:
        return tuple(draw(st.lists(st.sampled_from(odd), max_size=3, unique_by=id)))

    return Case(
        Snapshot(
            (*snapshot.nodes, *some(odd_nodes)),
            (*snapshot.pods, *some(odd_pods)),
            (*snapshot.jobs, *some(odd_jobs)),
        ),
        case.policy,
    )
