"""One simulation from beginning to end."""

from dataclasses import replace
from functools import partial

from policy.model import Policy
from simulator.clock import Clock
from simulator.cluster import Change, Cluster
from simulator.kubelet import Kubelets
from simulator.reconcile import Reconciler
from simulator.scheduler import Scheduler
from simulator.timing import Timing
from simulator.workload import Arrival, Workload

_EPOCH_S = 1_767_225_600.0
"""When simulations start: a day on which no daylight saving begins (2026-01-01, UTC)."""


def play(
    workload: Workload, policy: Policy | None = None, timing: Timing | None = None
) -> tuple[Change, ...]:
    """What happens to every pod of a workload, in order; times in seconds from the start.

    Args:
        workload: What comes, and when.
        policy: In force all the time.
        timing: How long things take.
    """
    policy, timing = policy or Policy(), timing or Timing()
    clock = Clock(_EPOCH_S)
    cluster = Cluster(clock, workload.nodes)
    seen: list[Change] = []
    cluster.watch_pods(lambda each: seen.append(replace(each, at_s=each.at_s - _EPOCH_S)))
    Kubelets(cluster, timing)
    Scheduler(cluster, policy, timing)
    Reconciler(cluster, policy, timing)
    for arrival in workload.arrivals:
        _schedule(cluster, timing, arrival)
    clock.run(_EPOCH_S + workload.end_s)
    return tuple(seen)


def _schedule(cluster: Cluster, timing: Timing, arrival: Arrival) -> None:
    """A user's objects: the pods are made by their controllers one by one, the job at once."""
    at_s = _EPOCH_S + arrival.at_s
    for number, pod in enumerate(arrival.pods, start=1):
        cluster.clock.at(at_s + number * timing.write_s, partial(cluster.create, pod))
    if arrival.job is not None:
        cluster.clock.at(at_s + timing.write_s, partial(cluster.submit, arrival.job))
