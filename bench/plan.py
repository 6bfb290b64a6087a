"""The plan: from nothing, after one pod's change, and with nothing changed."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from bench.benchmark import Result, Setting, Times, grown
from bench.clusters import NOW_S, cluster, policy, service
from bench.follow import Follower, bound
from bench.shapes import SERVICES
from e2e.measure.bars import Bar
from policy.elasticity import plan
from policy.index import Index
from policy.model import Policy
from policy.names import Tier
from policy.snapshot import Snapshot

LIMITS = {
    "full_plan_seconds": 1.0,
    "plan_memory_mb": 600.0,
    "plan_after_one_change_ms": 50.0,
}
SEEDS = (1, 2, 3)
"""Some clusters come to rest sooner than others; the slowest is the one that counts."""

_ROOT = Path(__file__).parents[1]
_COLD_TIMEOUT_S = 300
_SETTLING_ROUNDS = 20
_FULL_PLANS = 3
_FEWEST_CHANGES = 6
_MOST_MS = 30_000.0
"""No more changes are tried once plans after them have taken this long."""


def run(setting: Setting) -> Result:
    """All sizes; the bars are about the largest."""
    rows, raw = [], {}
    for nodes in setting.sizes:
        cold = []
        for seed in SEEDS:
            setting.tell(f"plan, {nodes} nodes: from nothing in a fresh process, seed {seed}")
            cold.append(_cold(nodes, seed))
        warm, rounds = _warm(nodes, setting)
        rows.append(_row(cold, warm))
        timed = {name: times.figures() for name, times in warm.items() if times.values}
        raw[str(nodes)] = {"cold": cold, "warm": timed, "plans_until_settled": rounds}
    bars = (Bar(name, value, _unit(name), LIMITS.get(name)) for name, value in rows[-1].items())
    return Result(tuple(bars), grown(rows), raw)


def _row(cold: list[dict[str, Any]], warm: dict[str, Times]) -> dict[str, float]:
    """Full plans are timed in three states, since the rules that run depend on it."""
    full = [found["plan_seconds"] for found in cold]
    unrest, rest = (warm[name].median / 1000 for name in ("unrest", "rest"))
    return {
        "full_plan_seconds": max(*full, unrest, rest),
        "full_plan_as_generated_seconds": median(full),
        "full_plan_while_rebalancing_seconds": unrest,
        "full_plan_at_rest_seconds": rest,
        "index_seconds": median(found["index_seconds"] for found in cold),
        "plan_memory_mb": max(found["peak_mb"] for found in cold),
        "plan_after_one_change_ms": warm["changed"].median,
        "plan_after_one_change_worst_ms": warm["changed"].worst,
        "plan_unchanged_ms": warm["unchanged"].median,
    }


def _unit(name: str) -> str:
    return {"seconds": "s", "mb": "MB", "ms": "ms"}[name.rpartition("_")[2]]


def _cold(nodes: int, seed: int) -> dict[str, Any]:
    """One plan from nothing in a fresh process."""
    command = [sys.executable, "-m", "bench.cold", str(nodes), str(seed)]
    done = subprocess.run(
        command, cwd=_ROOT, stdout=subprocess.PIPE, check=True, timeout=_COLD_TIMEOUT_S
    )
    found: dict[str, Any] = orjson.loads(done.stdout)
    return found


def _warm(nodes: int, setting: Setting) -> tuple[dict[str, Times], int]:
    """Plans beside a cluster that comes to rest, and how many it took until it did."""
    kinds = ("unrest", "rest", "changed", "unchanged", "service", "gone", "bound")
    times = {name: Times() for name in kinds}
    index, rules = Index.of(cluster(nodes)), policy()
    follower = Follower(index)
    follower.follow(plan(index, rules, NOW_S))
    setting.tell(f"plan, {nodes} nodes: trainers move until shares are fair")
    _full(index, rules, times["unrest"])
    rounds = 1 + follower.settle(rules, _SETTLING_ROUNDS)
    _full(index, rules, times["rest"])
    setting.tell(f"plan, {nodes} nodes: up to {setting.rounds} changes of one pod")
    _one_by_one(index, follower, times, setting)
    return times, rounds


def _full(index: Index, rules: Policy, times: Times) -> None:
    """Plans that know nothing from before, on the cluster as it is now."""
    now = Snapshot(
        tuple(index.nodes.values()), tuple(index.pods.values()), tuple(index.jobs.values())
    )
    for _ in range(_FULL_PLANS):
        fresh = Index.of(now)
        times.run(lambda fresh=fresh: plan(fresh, rules, NOW_S))  # type: ignore[misc] # mypy cannot type a lambda's default


def _one_by_one(
    index: Index, follower: Follower, times: dict[str, Times], setting: Setting
) -> None:
    """A plan after each change of one pod, and one more with nothing changed since."""
    rules = policy()
    follower.plan(rules)
    changes = _changes(index, follower)
    for number in range(setting.rounds):
        if number >= _FEWEST_CHANGES and sum(times["changed"].values) > _MOST_MS:
            break
        name, change = next(changes)

        def changed(change: Callable[[], None] = change) -> None:
            change()
            follower.plan(rules)

        times[name].run(changed)
        times["changed"].values.append(times[name].values[-1])
        times["unchanged"].run(lambda: follower.plan(rules))


def _changes(index: Index, follower: Follower) -> Iterator[tuple[str, Callable[[], None]]]:
    """In turns: a service appears, a trainer is gone, another one gets its node.

    What a step needs first is done outside the time that is measured, when the next is asked
    for; the cluster stays as full as it was.
    """
    leavers = [p for p in index.pods.values() if p.tier is Tier.SURPLUS and p.node]
    for number, pod in enumerate(sorted(leavers, key=lambda pod: pod.uid)):
        new = service(f"burst-{number:05}", "shop", SERVICES[number % len(SERVICES)])
        yield "service", lambda new=new: index.put_pod(new)  # type: ignore[misc] # mypy cannot type a lambda's default
        index.drop_pod(new.uid)
        yield "gone", lambda uid=pod.uid: index.drop_pod(uid)  # type: ignore[misc] # as above
        heir = follower.heir(index.jobs[f"{pod.namespace}/{pod.job}"], Tier.SURPLUS)
        index.put_pod(heir)
        at_work = bound(heir, pod.node)
        yield "bound", lambda pod=at_work: index.put_pod(pod)  # type: ignore[misc] # as above
