"""Duration of a plan: in a fresh process, after a change of one pod, and without changes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import orjson

from bench.benchmark import Result, Setting, Times, grown
from bench.clusters import NOW_S, cluster, policy, service
from bench.digits import ROOT
from bench.plan_executor import PlanExecutor, bound
from bench.shapes import SERVICES
from e2e.measure.criteria import Criterion
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Snapshot
from policy.document.model import Policy
from policy.names import Tier
from policy.planning.planner import plan

LIMITS = {
    "full_plan_seconds": 1.0,
    "plan_memory_mb": 600.0,
    "plan_after_one_change_ms": 50.0,
}
SEEDS = (1, 2, 3)
"""Clusters settle at different speeds; the slowest counts."""

_COLD_TIMEOUT_S = 300
_SETTLING_ROUNDS = 20
_FULL_PLANS = 3
_FEWEST_CHANGES = 6
_MAX_MS = 30_000.0
"""Total time of plans after changes; no more changes are measured after it."""


def run(setting: Setting) -> Result:
    """Measures all sizes; the criteria apply to the largest."""
    rows, raw = [], {}
    for nodes in setting.sizes:
        cold = []
        for seed in SEEDS:
            setting.report_progress(
                f"plan, {nodes} nodes: from nothing in a fresh process, seed {seed}"
            )
            cold.append(_cold(nodes, seed))
        warm, rounds = _warm(nodes, setting)
        rows.append(_row(cold, warm))
        timed = {name: times.figures() for name, times in warm.items() if times.values}
        raw[str(nodes)] = {"cold": cold, "warm": timed, "plans_until_settled": rounds}
    criteria = (
        Criterion(name, value, _unit(name), LIMITS.get(name)) for name, value in rows[-1].items()
    )
    return Result(tuple(criteria), grown(rows), raw)


def _row(cold: list[dict[str, Any]], warm: dict[str, Times]) -> dict[str, float]:
    """Returns the figures of one size; full plans are timed in three states, which need different rules."""
    full = [figures["plan_seconds"] for figures in cold]
    rebalancing_s, at_rest_s = (warm[name].median / 1000 for name in ("unrest", "rest"))
    return {
        "full_plan_seconds": max(*full, rebalancing_s, at_rest_s),
        "full_plan_as_generated_seconds": median(full),
        "full_plan_while_rebalancing_seconds": rebalancing_s,
        "full_plan_at_rest_seconds": at_rest_s,
        "index_seconds": median(figures["index_seconds"] for figures in cold),
        "plan_memory_mb": max(figures["peak_mb"] for figures in cold),
        "plan_after_one_change_ms": warm["changed"].median,
        "plan_after_one_change_worst_ms": warm["changed"].worst,
        "plan_unchanged_ms": warm["unchanged"].median,
    }


def _unit(name: str) -> str:
    return {"seconds": "s", "mb": "MB", "ms": "ms"}[name.rpartition("_")[2]]


def _cold(nodes: int, seed: int) -> dict[str, Any]:
    """Measures one plan in a fresh process."""
    command = [sys.executable, "-m", "bench.cold", str(nodes), str(seed)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=_COLD_TIMEOUT_S
    )
    figures: dict[str, Any] = orjson.loads(done.stdout)
    return figures


def _warm(nodes: int, setting: Setting) -> tuple[dict[str, Times], int]:
    """Measures plans on a cluster until it settles; returns the times and the number of plans."""
    kinds = ("unrest", "rest", "changed", "unchanged", "service", "gone", "bound")
    times = {name: Times() for name in kinds}
    state, rules = ClusterState.of(cluster(nodes)), policy()
    executor = PlanExecutor(state)
    executor.execute(plan(state, rules, NOW_S))
    setting.report_progress(f"plan, {nodes} nodes: trainers move until shares are fair")
    _full(state, rules, times["unrest"])
    rounds = 1 + executor.settle(rules, _SETTLING_ROUNDS)
    _full(state, rules, times["rest"])
    setting.report_progress(f"plan, {nodes} nodes: up to {setting.rounds} changes of one pod")
    _one_by_one(state, executor, times, setting)
    return times, rounds


def _full(state: ClusterState, rules: Policy, times: Times) -> None:
    """Measures plans from a new cluster state, without history."""
    now = Snapshot(
        tuple(state.nodes.values()), tuple(state.pods.values()), tuple(state.jobs.values())
    )
    for _ in range(_FULL_PLANS):
        fresh = ClusterState.of(now)
        times.run(lambda fresh=fresh: plan(fresh, rules, NOW_S))  # type: ignore[misc] # mypy cannot type a lambda's default


def _one_by_one(
    state: ClusterState, executor: PlanExecutor, times: dict[str, Times], setting: Setting
) -> None:
    """Measures a plan after each change of one pod, and another without changes."""
    rules = policy()
    executor.plan(rules)
    changes = _changes(state, executor)
    for number in range(setting.rounds):
        if number >= _FEWEST_CHANGES and sum(times["changed"].values) > _MAX_MS:
            break
        name, change = next(changes)

        def changed(change: Callable[[], None] = change) -> None:
            change()
            executor.plan(rules)

        times[name].run(changed)
        times["changed"].values.append(times[name].values[-1])
        times["unchanged"].run(lambda: executor.plan(rules))


def _changes(
    state: ClusterState, executor: PlanExecutor
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields changes in turn: a service appears, a trainer ends, its replacement gets the node.

    Preparations are made between the measured changes; the load of the cluster stays constant.
    """
    leavers = [p for p in state.pods.values() if p.tier is Tier.SURPLUS and p.node]
    for number, pod in enumerate(sorted(leavers, key=lambda pod: pod.uid)):
        new = service(f"burst-{number:05}", "shop", SERVICES[number % len(SERVICES)])
        yield "service", lambda new=new: state.put_pod(new)  # type: ignore[misc] # mypy cannot type a lambda's default
        state.drop_pod(new.uid)
        yield "gone", lambda uid=pod.uid: state.drop_pod(uid)  # type: ignore[misc] # as above
        replacement = executor.replacement(state.jobs[f"{pod.namespace}/{pod.job}"], Tier.SURPLUS)
        state.put_pod(replacement)
        at_work = bound(replacement, pod.node)
        yield "bound", lambda pod=at_work: state.put_pod(pod)  # type: ignore[misc] # as above
