"""Duration of plans on clusters that tenants make hard: every job waits as long as a plan takes.

Nothing of this is usual: minimums that no cluster can start, in one shape and in many, trainers whose
amounts divide by nothing on wide nodes, and a DaemonSet that rolls out, with room and on full nodes. And
what the PodDisruptionBudgets of a thousand jobs cost the loop, beside an API server that takes 4 ms. And how
long the webhook reads a policy that anybody may send it, before it refuses it.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from bench.benchmark import Result, Setting, Times
from bench.clusters import NOW_S, policy
from bench.shapes import GIB, amounts
from e2e.measure.criteria import Criterion
from kube.request import Request
from lab.fake_api import FakeApi
from policy.admission.job_settings import MAX_TRAINERS
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import (
    Constraints,
    Job,
    Node,
    Phase,
    Pod,
    Requirement,
    Resources,
    Snapshot,
)
from policy.document import parser as document
from policy.errors import DocumentError
from policy.names import NODE_NAME, Role, Tier
from policy.planning.plan import History
from policy.planning.planner import plan
from reconciler.system_objects import SystemObjects

_REPETITIONS = 5
_JOBS, _NODES = 40, 300
_WIDE_NODES = 100
_ROLLOUT_NODES = 1_200
_BUDGETS, _WRITERS, _ANSWER_S = 1_000, 8, 0.004
_TICK_S, _TICKS = 0.05, 120
_ODD = ((2.1, 4.2), (4.1, 8.2), (1.1, 3.1), (8.1, 16.3))
"""CPU and GiB of trainers of four jobs with a sidecar of 0.1 CPU."""
LIMITS = {
    "huge_minimums_plan_ms": 50.0,
    "huge_minimums_of_40_shapes_plan_ms": 50.0,
    "odd_shapes_cold_plan_ms": 300.0,
    "rollout_plan_ms": 50.0,
    "rollout_on_full_nodes_plan_ms": 50.0,
    "budgets_tick_ms": 10.0,
    "merge_keys_refused_ms": 10.0,
    "hostile_policy_refused_ms": 500.0,
}


def run(setting: Setting) -> Result:
    """Measures each cluster, always in the sizes of the criteria."""
    scenes: dict[str, Callable[[], float]] = {
        "huge_minimums_plan_ms": lambda: _again_ms(_huge_minimums(shapes=1)),
        "huge_minimums_of_40_shapes_plan_ms": lambda: _again_ms(_huge_minimums(shapes=_JOBS)),
        "odd_shapes_cold_plan_ms": lambda: _cold_ms(_odd_shapes()),
        "rollout_plan_ms": lambda: _again_ms(_rollout(trainers_per_node=2)),
        "rollout_on_full_nodes_plan_ms": lambda: _again_ms(_rollout(trainers_per_node=3)),
        "budgets_tick_ms": _budgets_ms,
        "merge_keys_refused_ms": lambda: _refusal_ms(_merge_keys()),
        "hostile_policy_refused_ms": lambda: max(map(_refusal_ms, _hostile_policies())),
    }
    figures = {}
    for name, measure in scenes.items():
        setting.report_progress(f"bounds: {name}")
        figures[name] = measure()
    criteria = tuple(Criterion(name, ms, "ms", LIMITS.get(name)) for name, ms in figures.items())
    return Result(criteria, {})


def _cold_ms(snapshot: Snapshot) -> float:
    """Returns the fastest of a few plans from nothing: other load of the machine only adds to a time."""
    times = Times()
    for _ in range(_REPETITIONS):
        state = ClusterState.of(snapshot)
        times.run(lambda state=state: plan(state, policy(), NOW_S, History()))  # type: ignore[misc] # mypy cannot type a lambda's default
    return min(times.values)


def _again_ms(snapshot: Snapshot) -> float:
    """Returns the fastest of a few plans of one state, as the loop makes them while little changes."""
    times = Times()
    state = ClusterState.of(snapshot)
    plan(state, policy(), NOW_S)
    for _ in range(_REPETITIONS):
        times.run(lambda: plan(state, policy(), NOW_S))
    return min(times.values)


def _refusal_ms(text: str) -> float:
    """Returns the fastest of a few refusals of a policy document."""
    times = Times()
    for _ in range(_REPETITIONS):
        times.run(lambda: _refuse(text))
    return min(times.values)


def _refuse(text: str) -> None:
    """Raises ValueError where the document is a policy."""
    try:
        document.parse(text)
    except DocumentError:
        return
    raise ValueError("a hostile document is taken for a policy")


def _merge_keys() -> str:
    """Some 470 bytes, of which seven levels of merge keys make ten million keys."""
    first = "a: &a {x: 1}\n"
    names = "abcdefgh"
    return first + "".join(
        f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 10)}]}}\n"
        for before, name in pairwise(names)
    )


def _hostile_policies() -> tuple[str, ...]:
    """Documents of the greatest length that are refused as late as possible, or in the slowest way."""
    size = document.MAX_BYTES
    return (
        "reserve: {maxLoad: {cpu: 1" + ":1" * (size // 2 - 20) + "}}",
        "quotas: [" + "{x: 1}," * (size // 7 - 2) + "]",
        "".join(f"f{number}: 1\n" for number in range(size // 12)),
        "[" + "[]," * (size // 3 - 2) + "]",
    )


class _SlowApi(FakeApi):
    def send(self, request: Request) -> bytes:
        time.sleep(_ANSWER_S)
        return super().send(request)


def _budgets_ms() -> float:
    """Returns the slowest of the ticks in which the budgets of all jobs are created, in the loop's thread."""
    jobs = [_job(number, amounts(1, 1024), 2) for number in range(_BUDGETS)]
    times = Times()
    with ThreadPoolExecutor(_WRITERS) as pool:
        objects = SystemObjects(_SlowApi(), pool)
        objects.ensure((), NOW_S)  # priority classes come first, in a tick of their own
        for tick in range(_TICKS):
            times.run(lambda tick=tick: objects.ensure(jobs, NOW_S + tick * _TICK_S))  # type: ignore[misc] # mypy cannot type a lambda's default
            time.sleep(_TICK_S)
    return times.worst


def _huge_minimums(shapes: int) -> Snapshot:
    """Jobs whose minimum is the largest that there is, on nodes that are half used."""
    nodes = [_node(number, 32, 128) for number in range(_NODES)]
    jobs = [
        _job(number, amounts(1 + number % shapes / 40, 2048 + number % shapes), MAX_TRAINERS)
        for number in range(_JOBS)
    ]
    return Snapshot(tuple(nodes), tuple(_services(nodes, amounts(16, 65_536))), tuple(jobs))


def _odd_shapes() -> Snapshot:
    """Trainers with a sidecar, and nodes that each have other free amounts."""
    nodes = [_node(number, 64, 256) for number in range(_WIDE_NODES)]
    jobs = [_job(n, amounts(cpu, gib * 1024), 2) for n, (cpu, gib) in enumerate(_ODD)]
    pods = [
        _service(node, amounts(0.1 * number + 0.017, 100.3 * number))
        for number, node in enumerate(nodes)
    ]
    return Snapshot(tuple(nodes), tuple(pods), tuple(jobs))


def _rollout(trainers_per_node: int) -> Snapshot:
    """Returns a DaemonSet's pod waits for each node; three trainers fill a node."""
    nodes = [_node(number, 16, 64) for number in range(_ROLLOUT_NODES)]
    job = _job(0, amounts(5, 8192), 1)
    places = [node for node in nodes for _ in range(trainers_per_node)]
    trainers = [_trainer(job, number, node) for number, node in enumerate(places)]
    agents = [_agent(node) for node in nodes]
    services = _services(nodes, amounts(1, 1024))
    return Snapshot(tuple(nodes), (*trainers, *agents, *services), (job,))


def _node(number: int, cpu: int, gib: int) -> Node:
    return Node(
        name=f"node-{number:05}",
        allocatable={"cpu": cpu * 1000, "memory": gib * GIB, "pods": 110},
    )


def _job(number: int, requests: Resources, minimum: int) -> Job:
    return Job(
        namespace="ml",
        name=f"job-{number:03}",
        uid=f"job-{number:03}",
        min_trainers=minimum,
        max_trainers=MAX_TRAINERS,
        requests=requests,
        created_s=NOW_S - 3600 + number,
    )


def _services(nodes: Iterable[Node], requests: Resources) -> Iterable[Pod]:
    return [_service(node, requests) for node in nodes]


def _service(node: Node, requests: Resources) -> Pod:
    name = f"service-{node.name}"
    return Pod("shop", name, name, requests, node=node.name, phase=Phase.RUNNING, ready=True)


def _trainer(job: Job, number: int, node: Node) -> Pod:
    name = f"{job.name}-{number}"
    return Pod(
        *(job.namespace, name, name, job.requests),
        priority=-1000,
        node=node.name,
        phase=Phase.RUNNING,
        ready=True,
        started_s=NOW_S - 600,
        owner_uid=job.uid,
        job=job.name,
        role=Role.TRAINER,
        tier=Tier.SURPLUS if number else Tier.GUARANTEED,
        trainer_id=number,
    )


def _agent(node: Node) -> Pod:
    name = f"agent-{node.name}"
    return Pod(
        *("kube-system", name, name, amounts(0.1, 128)),
        priority=2_000_001_000,
        created_s=NOW_S - 1,
        owner_uid="agent",
        constraints=Constraints(((Requirement(NODE_NAME, "In", (node.name,)),),)),
    )
