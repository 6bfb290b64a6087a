"""Duration of plans that are harder than usual: odd amounts, a DaemonSet's rollout, avoided nodes.

An injected sidecar adds a little to every trainer, and the sums divide by nothing: few nodes have equal
free amounts, and no filling of a node is without waste. Where trainers have failed, each job avoids other
nodes. Each cluster is measured beside the usual one.
"""

from collections.abc import Iterable
from dataclasses import replace

from bench.benchmark import Result, Setting, Times, grown
from bench.clusters import NOW_S, cluster, policy
from bench.shapes import SYSTEM, amounts
from e2e.measure.criteria import Criterion
from policy.cluster import amounts as sums
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Constraints, Phase, Pod, Requirement, Snapshot
from policy.names import Role
from policy.planning.planner import plan

_REPETITIONS = 3
_SIDECAR = amounts(0.117, 137.3) | {"pods": 0}
LIMITS = {"odd_plan_ratio": 3.0, "avoiding_plan_ratio": 2.0}


def run(setting: Setting) -> Result:
    """Measures all sizes; the criterion applies to the largest."""
    rows = []
    for nodes in setting.sizes:
        setting.report_progress(f"odd, {nodes} nodes: odd trainers, a rollout, avoided nodes")
        usual = cluster(nodes)
        empty = _without_trainers(usual)
        clusters = {"empty": empty, "odd": _with_sidecars(empty)}
        clusters |= {"usual": usual, "rollout": _with_rollout(usual)}
        clusters["avoiding"] = _with_failures(usual)
        rows.append({f"{name}_plan_ms": _plan_ms(hard) for name, hard in clusters.items()})
        rows[-1]["odd_plan_ratio"] = rows[-1]["odd_plan_ms"] / rows[-1]["empty_plan_ms"]
        rows[-1]["avoiding_plan_ratio"] = rows[-1]["avoiding_plan_ms"] / rows[-1]["usual_plan_ms"]
    criteria = (
        Criterion(name, value, "" if name.endswith("ratio") else "ms", LIMITS.get(name))
        for name, value in rows[-1].items()
    )
    return Result(tuple(criteria), grown(rows))


def _plan_ms(snapshot: Snapshot) -> float:
    """Returns the fastest of a few plans from nothing: other load of the machine only adds to a time."""
    times = Times()
    for _ in range(_REPETITIONS):
        state = ClusterState.of(snapshot)
        times.run(lambda state=state: plan(state, policy(), NOW_S))  # type: ignore[misc] # mypy cannot type a lambda's default
    return min(times.values)


def _without_trainers(snapshot: Snapshot) -> Snapshot:
    """Returns the same cluster before any training: most of every node is free."""
    return replace(snapshot, pods=tuple(pod for pod in snapshot.pods if pod.role is None))


def _with_sidecars(snapshot: Snapshot) -> Snapshot:
    """Returns the same cluster, with a sidecar for each trainer, of a size that depends on the job."""
    jobs = []
    for number, job in enumerate(snapshot.jobs):
        requests = dict(job.requests)
        sums.add(requests, {name: amount * (1 + number % 2) for name, amount in _SIDECAR.items()})
        jobs.append(replace(job, requests=requests))
    return replace(snapshot, jobs=tuple(jobs))


def _with_rollout(snapshot: Snapshot) -> Snapshot:
    """Returns the same cluster with one more DaemonSet, whose pods have not started yet."""
    return replace(snapshot, pods=(*snapshot.pods, *_rollout(snapshot)))


def _rollout(snapshot: Snapshot) -> Iterable[Pod]:
    shape = SYSTEM[0]
    for node in snapshot.nodes:
        term = (Requirement("metadata.name", "In", (node.name,)),)
        yield Pod(
            namespace="kube-system",
            name=f"agent-{node.name}",
            uid=f"agent-{node.name}",
            requests=shape.requests,
            priority=shape.priority,
            created_s=NOW_S - 1,
            owner_uid="agent",
            constraints=Constraints((term,), shape.constraints.tolerations),
        )


def _with_failures(snapshot: Snapshot) -> Snapshot:
    """Returns the same cluster after each job has failed at its start on two separate nodes."""
    trainers = {pod.job: pod for pod in snapshot.pods if pod.role is Role.TRAINER and pod.node}
    names = sorted(node.name for node in snapshot.nodes)
    failed = [
        replace(
            pod,
            name=f"{job}-failed-{place}",
            uid=f"{job}-failed-{place}",
            node=names[(2 * number + place) % len(names)],
            phase=Phase.FAILED,
            ended_s=NOW_S - 5.0,
        )
        for number, (job, pod) in enumerate(sorted(trainers.items()))
        for place in range(2)
    ]
    return replace(snapshot, pods=(*snapshot.pods, *failed))
