"""Hypothesis strategies for small clusters: small enough that a failing case can be read."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from policy.cluster import amounts
from policy.cluster.snapshot import Job, Node, Pod, Snapshot
from policy.document.model import Fairness, FairnessBy, Policy, Reserve, Sizes, Stability
from policy.document.queue_model import Queue, Quota
from policy.names import Tier
from tests.support.builders import GI, job, node, service, shape, trainer

THOROUGH = settings.get_current_profile_name() == "thorough"
"""Whether this is the long run, with other examples each time (`make properties`)."""
_EXAMPLES = {"quick": 20, "soak": 60}
"""Profile -> how many of the same examples in each run; others have their own."""
CALM = (
    settings(derandomize=True, deadline=None, max_examples=_EXAMPLES[profile])
    if (profile := settings.get_current_profile_name()) in _EXAMPLES
    else settings()
)
"""The same examples in every run, except in the long one; pytest's timeout bounds each test."""

_SHAPES = ((5, 0), (4, 8), (2, 0), (3, 16))
_TRAINERS_FROM = 100
"""Ids of trainers found; those made by the tests' cluster come later."""


def nodes(least: int = 1, most: int = 4) -> st.SearchStrategy[list[Node]]:
    """Nodes of 2 to 20 CPU; now and then one takes no new pods."""
    node_shape = st.tuples(st.integers(2, 20), st.sampled_from([16, 64]), st.integers(0, 9))
    return st.lists(node_shape, min_size=least, max_size=most).map(
        lambda shapes: [
            node(f"n{i}", cpu, memory=memory, unschedulable=state == 0, ready=state != 1)
            for i, (cpu, memory, state) in enumerate(shapes)
        ]
    )


@st.composite
def jobs(draw: st.DrawFn, most: int = 4) -> list[Job]:
    """Jobs of up to 8 trainers, some of them heavier, in other queues, suspended or over."""
    new_jobs = []
    for i in range(draw(st.integers(1, most))):
        low = draw(st.integers(1, 3))
        cpu, memory = draw(st.sampled_from(_SHAPES))
        new_jobs.append(
            job(
                f"j{i}",
                low,
                draw(st.integers(low, 8)),
                cpu=cpu,
                memory=memory,
                weight=draw(st.sampled_from([1, 1, 1, 2, 5])),
                queue=draw(st.sampled_from(["", "night"])),
                created_s=float(draw(st.integers(0, 50))),
                suspended=draw(st.integers(0, 9)) == 0,
            )
        )
    return new_jobs


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Policies with and without reserve, quotas and sizes."""
    quotas = st.builds(
        Quota, queue=st.just("night"), requests=st.sampled_from([{"cpu": "11"}, {"pods": "3"}])
    )
    sizes = st.sampled_from([Sizes(step=2), Sizes(powers_of_two=True), Sizes(allowed=(1, 3, 4))])
    return Policy(
        reserve=Reserve(max_load={"cpu": draw(st.sampled_from([1.0, 0.97, 0.8, 0.5]))}),
        fairness=Fairness(
            by=draw(st.sampled_from(FairnessBy)),
            queue_weights=draw(st.sampled_from([{}, {"night": 3}])),
        ),
        quotas=tuple(draw(st.lists(quotas, max_size=1))),
        sizes=tuple(draw(st.lists(sizes, max_size=1))) if draw(st.integers(0, 3)) == 0 else (),
        stability=Stability(
            gain_threshold=draw(st.sampled_from([0.0, 0.1, 0.5])),
            max_moves=draw(st.sampled_from([0.1, 1.0])),
        ),
    )


class Case:
    """A cluster and the policy for it; shows only what differs from the rule."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.snapshot = snapshot
        self.policy = policy

    def __repr__(self) -> str:
        nodes = [
            (n.name, n.allocatable["cpu"], n.allocatable["memory"] // GI, n.ready, n.unschedulable)
            for n in self.snapshot.nodes
        ]
        jobs = [
            (j.name, j.min_trainers, j.max_trainers, j.requests, j.weight, j.queue, j.suspended)
            for j in self.snapshot.jobs
        ]
        pods = [
            (p.name, p.tier, p.requests.get("cpu"), p.node, p.deleting) for p in self.snapshot.pods
        ]
        policy = self.policy.model_dump(mode="json", exclude_defaults=True)
        return f"Case({nodes=}, {jobs=}, {pods=}, {policy=})"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Clusters in the middle of things: services run and wait, trainers run, wait and leave."""
    drawn_nodes = draw(nodes())
    drawn_jobs = draw(jobs())
    room = {n.name: dict(n.allocatable) for n in drawn_nodes}
    pods = [
        somewhere(draw, room, service(f"s{i}", draw(st.integers(1, 9))))
        for i in range(draw(st.integers(0, 8)))
    ]
    for owner in drawn_jobs:
        for i in range(draw(st.integers(0, owner.max_trainers))):
            tier = Tier.GUARANTEED if i < owner.min_trainers else Tier.SURPLUS
            pod = trainer(owner, _TRAINERS_FROM + i, tier=tier)
            pods.append(somewhere(draw, room, pod))
    return Case(Snapshot(tuple(drawn_nodes), tuple(pods), tuple(drawn_jobs)), draw(policies()))


@st.composite
def lending_cases(draw: st.DrawFn) -> Case:
    """As `cases`, with queues that lend to each other and of which some come first."""
    case: Case = draw(cases())
    queue_names = [draw(st.sampled_from(["a", "a", "b", "c", ""])) for _ in case.snapshot.jobs]
    jobs = (replace(j, queue=q) for j, q in zip(case.snapshot.jobs, queue_names, strict=True))
    queues = [
        Queue(
            name=name,
            namespaces=("*",),
            priority=draw(st.sampled_from([0, 0, 1])),
            nominal_quota={"cpu": str(draw(st.integers(0, 20)))},
            borrowing_limit=draw(st.sampled_from([{}, {}, {"cpu": "0"}, {"cpu": "6"}])),
        )
        for name in ("a", "b")
    ]
    queues.append(Queue(name="c", namespaces=("*",), priority=draw(st.integers(0, 2))))
    policy = case.policy.model_copy(update={"queues": tuple(queues)})
    snapshot = replace(case.snapshot, jobs=tuple(jobs))
    return Case(snapshot, policy)


def somewhere(draw: st.DrawFn, room: dict[str, dict[str, int]], pod: Pod) -> Pod:
    """The pod on a node with room for it, leaving now and then; waiting where there is none."""
    fitting = sorted(name for name, free in room.items() if amounts.within(pod.requests, free))
    where = draw(st.sampled_from(["", *fitting])) if fitting else ""
    if not where:
        return pod
    amounts.subtract(room[where], pod.requests)
    leaving = draw(st.integers(0, 7)) == 0
    return replace(pod, node=where, deleting=leaving, ready=True, started_s=pod.created_s)


def requests() -> st.SearchStrategy[dict[str, int]]:
    """What a pod asks for."""
    return st.builds(shape, st.integers(1, 9), st.sampled_from([0, 4]), st.sampled_from([0, 0, 1]))
