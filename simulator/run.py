"""Runs one simulation."""

from dataclasses import replace
from functools import partial

from policy.cluster.snapshot import Phase
from policy.document.model import Policy
from simulator.clock import Clock
from simulator.cluster import PodChange, SimulatedCluster
from simulator.kubelet import SimulatedKubelets
from simulator.reconcile import Observer, SimulatedReconciler
from simulator.scheduler import SimulatedScheduler
from simulator.timing import Timing
from simulator.workload import Arrival, Workload

_EPOCH_S = 1_767_225_600.0
"""Start of simulations, on a day without a change of daylight saving time (2026-01-01, UTC)."""


def play(
    workload: Workload,
    policy: Policy | None = None,
    timing: Timing | None = None,
    observe: Observer | None = None,
    *,
    extender: bool = True,
) -> tuple[PodChange, ...]:
    """Runs a workload; returns all changes of pods, in order, with times in seconds from the start.

    Args:
        workload: The nodes, and the arrivals with their times.
        policy: The policy at the start; the default if None.
        timing: Durations of the simulated operations.
        observe: Receives the input of each plan, and the plan.
        extender: Whether kube-scheduler is configured with the extender.
    """
    policy, timing = policy or Policy(), timing or Timing()
    clock = Clock(_EPOCH_S)
    cluster = SimulatedCluster(clock, workload.nodes)
    changes: list[PodChange] = []
    cluster.watch_pods(lambda change: changes.append(replace(change, at_s=change.at_s - _EPOCH_S)))
    SimulatedKubelets(cluster, timing)
    scheduler = SimulatedScheduler(cluster, policy, timing, extender=extender)
    reconciler = SimulatedReconciler(cluster, policy, timing, observe, extender=extender)
    for arrival in workload.arrivals:
        _schedule(cluster, timing, arrival)
        if arrival.policy is not None:
            at_s = _EPOCH_S + arrival.at_s
            clock.at(at_s, partial(scheduler.follow, arrival.policy))
            clock.at(at_s, partial(reconciler.follow, arrival.policy))
    clock.run(_EPOCH_S + workload.end_s)
    return tuple(changes)


def _schedule(cluster: SimulatedCluster, timing: Timing, arrival: Arrival) -> None:
    """Schedules an arrival: its pods are created one after another, and its job at once."""
    at_s = _EPOCH_S + arrival.at_s
    for number, pod in enumerate(arrival.pods, start=1):
        cluster.clock.at(at_s + number * timing.write_s, partial(cluster.create, pod))
    if arrival.job is not None:
        cluster.clock.at(at_s + timing.write_s, partial(cluster.submit, arrival.job))
    if arrival.job is not None and arrival.runs_s:
        cluster.watch_pods(partial(_end_later, cluster, arrival))


def _end_later(cluster: SimulatedCluster, arrival: Arrival, change: PodChange) -> None:
    """Schedules the end of a job once its first trainer runs."""
    job, new = arrival.job, change.new
    if job is None or new is None or new.owner_uid != job.uid or new.phase is not Phase.RUNNING:
        return
    running = [pod for pod in cluster.state.trainers(job) if pod.phase is Phase.RUNNING]
    if running == [new] and (change.old is None or change.old.phase is not Phase.RUNNING):
        cluster.clock.after(arrival.runs_s, partial(cluster.end, job))
