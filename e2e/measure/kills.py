"""Which running trainers were told to stop, by whom, and how many had to be (pure)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from e2e.measure.curves import Curves
from e2e.measure.level import Level, Span
from e2e.measure.pods import Kind
from e2e.measure.record import Life, Timeline
from e2e.measure.unavoidable import Room, unavoidable
from e2e.workload import SERVICE_CPU_MILLIS, TRAINER_CPU_MILLIS

_NEAR_S = 3.0
"""The scheduler nominates a node in the same breath as it deletes the victims on it."""


class Cause(StrEnum):
    """Why a trainer that had a node was told to stop."""

    SERVICES = "preempted by services"
    TRAINING = "preempted by another job's support or guaranteed pods"
    UNCLEAR = "preempted, by whom is unclear"
    RELEASED = "released through the Eviction API"
    OTHER = "deleted otherwise"


@dataclass(frozen=True, slots=True)
class Kill:
    """One trainer that had a node and was told to stop."""

    life: Life
    at_s: float
    cause: Cause


def kills(timeline: Timeline) -> tuple[Kill, ...]:
    """Every trainer killed, in order of time."""
    nominations = _nominations(timeline.lives)
    found = [
        Kill(life, life.killed_s, _cause(life, life.killed_s, nominations))
        for life in timeline.lives
        if life.killed_s is not None
    ]
    return tuple(sorted(found, key=lambda kill: kill.at_s))


def causes(found: Iterable[Kill]) -> dict[str, int]:
    """Cause -> number of kills; every cause is there."""
    counted = Counter(kill.cause for kill in found)
    return {cause.value: counted[cause] for cause in Cause}


def needed_by_steps(timeline: Timeline) -> tuple[int, ...]:
    """For each step up, the fewest trainers that had to go for it."""
    steps = timeline.steps
    return tuple(
        unavoidable(
            _rooms(timeline, after.at_s),
            after.services - before.services,
            service_millis=SERVICE_CPU_MILLIS,
            trainer_millis=TRAINER_CPU_MILLIS,
        )
        for before, after in pairwise(steps)
        if after.services > before.services
    )


def needed_by_start(curves: Curves) -> int:
    """How many had to go so that the first plateau ended in the shares it ended in.

    Jobs that come first may take room that later ones get a share of: each job's highest
    number of trainers that held a node, less what it had at the end of the plateau. Every
    one of these had to be stopped once; whoever stops more has moved trainers to and fro.
    """
    timeline = curves.timeline
    begin, end = timeline.plateau(0)
    return sum(
        max(0, _bound(timeline, job).peak(begin, end) - level.before(end))
        for job, level in curves.trainers.items()
    )


def _bound(timeline: Timeline, job: str) -> Level:
    return Level.of(
        Span(life.bound_s, life.leaves_s)
        for life in timeline.lives
        if life.kind is Kind.TRAINER and life.job == job and life.bound_s is not None
    )


def _rooms(timeline: Timeline, at_s: float) -> list[Room]:
    free = dict(timeline.nodes)
    trainers: Counter[str] = Counter()
    for life in timeline.lives:
        if life.bound_s is None or life.bound_s > at_s or life.node not in free:
            continue
        if life.ended_s is not None and life.ended_s <= at_s:
            continue
        if life.deleting_s is not None and life.deleting_s <= at_s:
            continue  # on its way out already: its room needs no further kill
        free[life.node] -= life.cpu_millis
        trainers[life.node] += life.kind is Kind.TRAINER
    return [Room(millis, trainers[node]) for node, millis in free.items()]


def _nominations(lives: Iterable[Life]) -> dict[str, list[tuple[float, Kind]]]:
    """Node -> (when, kind of pod) of everything that room was made for."""
    by_node: dict[str, list[tuple[float, Kind]]] = {}
    for life in lives:
        if life.kind is Kind.TRAINER and life.surplus:
            continue  # surplus never preempts
        for at_s, node in life.nominations:
            by_node.setdefault(node, []).append((at_s, life.kind))
    return by_node


def _cause(life: Life, at_s: float, nominations: dict[str, list[tuple[float, Kind]]]) -> Cause:
    if life.disruption == "EvictionByEvictionAPI":
        return Cause.RELEASED
    if life.disruption != "PreemptionByScheduler":
        return Cause.OTHER
    near = [
        (abs(when - at_s), kind)
        for when, kind in nominations.get(life.node, ())
        if abs(when - at_s) <= _NEAR_S
    ]
    if not near:
        return Cause.UNCLEAR
    _, kind = min(near, key=lambda found: found[0])
    return Cause.SERVICES if kind in (Kind.SERVICE, Kind.SYSTEM) else Cause.TRAINING
