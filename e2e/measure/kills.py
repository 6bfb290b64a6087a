"""Which placed trainers were deleted, why, and how many deletions were needed (pure)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from e2e.measure.curves import Curves
from e2e.measure.level import Level, WeightedSpan
from e2e.measure.pods import Kind
from e2e.measure.record import PodLifetime, Timeline
from e2e.measure.unavoidable import NodeCapacity, unavoidable
from e2e.workload import SERVICE_CPU_MILLIS, TRAINER_CPU_MILLIS

_NEAR_S = 3.0
"""The scheduler nominates a node in the same breath as it deletes the victims on it."""


class Cause(StrEnum):
    """The cause of a trainer's deletion, of one that had a node."""

    SERVICES = "preempted by services"
    TRAINING = "preempted by another job's support or guaranteed pods"
    UNCLEAR = "preempted, by whom is unclear"
    RELEASED = "released through the Eviction API"
    OTHER = "deleted otherwise"


@dataclass(frozen=True, slots=True)
class Kill:
    """The deletion of one trainer that had a node."""

    lifetime: PodLifetime
    at_s: float
    cause: Cause


def kills(timeline: Timeline) -> tuple[Kill, ...]:
    """Every trainer killed, in order of time."""
    nominations = _nominations(timeline.lifetimes)
    all_kills = [
        Kill(lifetime, lifetime.killed_s, _cause(lifetime, lifetime.killed_s, nominations))
        for lifetime in timeline.lifetimes
        if lifetime.killed_s is not None
    ]
    return tuple(sorted(all_kills, key=lambda kill: kill.at_s))


def causes(all_kills: Iterable[Kill]) -> dict[str, int]:
    """Cause -> number of kills; every cause is there."""
    counted = Counter(kill.cause for kill in all_kills)
    return {cause.value: counted[cause] for cause in Cause}


def needed_by_steps(timeline: Timeline) -> tuple[int, ...]:
    """For each step up, the fewest trainers that had to go for it."""
    steps = timeline.steps
    sizes = (pod.cpu_millis for pod in timeline.lifetimes if pod.kind is Kind.TRAINER)
    trainer_millis = max(sizes, default=TRAINER_CPU_MILLIS)
    return tuple(
        unavoidable(
            _node_capacities(timeline, after.at_s),
            after.services - before.services,
            service_millis=SERVICE_CPU_MILLIS,
            trainer_millis=trainer_millis,
        )
        for before, after in pairwise(steps)
        if after.services > before.services
    )


def needed_by_start(curves: Curves) -> int:
    """Returns how many had to go so that the first plateau ended in the shares it ended in.

    Jobs that come first may take room that later ones get a share of: each job's highest
    number of trainers that held a node, less what it had at the end of the plateau. Every
    one of these had to be stopped once; a policy that stops more has moved trainers back and forth.
    """
    timeline = curves.timeline
    begin, end = timeline.plateau(0)
    return sum(
        max(0, _bound(timeline, job).peak(begin, end) - level.before(end))
        for job, level in curves.trainers.items()
    )


def _bound(timeline: Timeline, job: str) -> Level:
    return Level.of(
        WeightedSpan(lifetime.bound_s, lifetime.leaves_s)
        for lifetime in timeline.lifetimes
        if lifetime.kind is Kind.TRAINER and lifetime.job == job and lifetime.bound_s is not None
    )


def _node_capacities(timeline: Timeline, at_s: float) -> list[NodeCapacity]:
    free = dict(timeline.nodes)
    trainers: Counter[str] = Counter()
    for lifetime in timeline.lifetimes:
        if lifetime.bound_s is None or lifetime.bound_s > at_s or lifetime.node not in free:
            continue
        if lifetime.ended_s is not None and lifetime.ended_s <= at_s:
            continue
        if lifetime.deleting_s is not None and lifetime.deleting_s <= at_s:
            continue  # on its way out already: its room needs no further kill
        free[lifetime.node] -= lifetime.cpu_millis
        trainers[lifetime.node] += lifetime.kind is Kind.TRAINER
    return [NodeCapacity(millis, trainers[node]) for node, millis in free.items()]


def _nominations(lifetimes: Iterable[PodLifetime]) -> dict[str, list[tuple[float, Kind]]]:
    """Node -> (when, kind of pod) of everything that room was made for."""
    by_node: dict[str, list[tuple[float, Kind]]] = {}
    for lifetime in lifetimes:
        if lifetime.kind is Kind.TRAINER and lifetime.surplus:
            continue  # surplus never preempts
        for at_s, node in lifetime.nominations:
            by_node.setdefault(node, []).append((at_s, lifetime.kind))
    return by_node


def _cause(
    lifetime: PodLifetime, at_s: float, nominations: dict[str, list[tuple[float, Kind]]]
) -> Cause:
    if lifetime.disruption == "EvictionByEvictionAPI":
        return Cause.RELEASED
    if lifetime.disruption != "PreemptionByScheduler":
        return Cause.OTHER
    near = [
        (abs(when - at_s), kind)
        for when, kind in nominations.get(lifetime.node, ())
        if abs(when - at_s) <= _NEAR_S
    ]
    if not near:
        return Cause.UNCLEAR
    _, kind = min(near, key=lambda nomination: nomination[0])
    return Cause.SERVICES if kind in (Kind.SERVICE, Kind.SYSTEM) else Cause.TRAINING
