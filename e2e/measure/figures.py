"""The figures of a run, each a pure function of its curves (units: seconds, pods, percent)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from e2e.measure.curves import Curves, waiting
from e2e.measure.kills import Cause, Kill, kills
from e2e.measure.level import Level
from e2e.measure.pods import Kind
from e2e.measure.record import PodLifetime, Timeline


@dataclass(frozen=True, slots=True)
class Reclaim:
    """One step up: how long services waited for their capacity."""

    before: int
    after: int
    seconds: float | None
    """From the request until all wanted services ran; None: not before the next step."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Where the time of one step up went: seconds from the request to the last of each."""

    created_s: float
    """Service pods created."""
    told_s: float
    """Trainers deleted; 0 where none had to be."""
    stopped_s: float
    """Their containers ended."""
    bound_s: float
    """Services given a node."""
    running_s: float
    """Services running."""


@dataclass(frozen=True, slots=True)
class StartUp:
    """Times from a job's submission to its first trainer and its whole minimum; None: never."""

    job: str
    first_s: float | None
    """Until its first trainer ran."""
    whole_s: float | None
    """Until its whole minimum ran."""


def reclaims(curves: Curves) -> tuple[Reclaim, ...]:
    """Every step up, in order."""
    step_reclaims = []
    steps = curves.timeline.steps
    for index, (before, after) in enumerate(pairwise(steps), start=1):
        if after.services <= before.services:
            continue
        begin, end = curves.timeline.plateau(index)
        reached = curves.services.first(begin, end, lambda ran, want=after.services: ran >= want)  # type: ignore[misc] # mypy cannot type a lambda's default
        step_reclaims.append(
            Reclaim(before.services, after.services, None if reached is None else reached - begin)
        )
    return tuple(step_reclaims)


def stages(curves: Curves, all_kills: Sequence[Kill]) -> tuple[Stages, ...]:
    """For every step up, how long each stage took; within the plateau, where it was not reached."""
    timeline = curves.timeline
    step_stages = []
    for index, (before, after) in enumerate(pairwise(timeline.steps), start=1):
        if after.services > before.services:
            begin, end = timeline.plateau(index)
            burst = [
                lifetime
                for lifetime in curves.of(Kind.SERVICE)
                if begin <= lifetime.created_s < end
            ]
            ready_s = _last(end, [lifetime.running_s for lifetime in burst])
            victims = [kill for kill in all_kills if begin <= kill.at_s <= ready_s]
            lasts = (
                _last(end, [lifetime.created_s for lifetime in burst]),
                _last(begin, [kill.at_s for kill in victims]),
                _last(begin, [kill.lifetime.ended_s for kill in victims]),
                _last(end, [lifetime.bound_s for lifetime in burst]),
                ready_s,
            )
            step_stages.append(Stages(*(min(last, end) - begin for last in lasts)))
    return tuple(step_stages)


def _last(default: float, times: Sequence[float | None]) -> float:
    """Returns the last of the times that are known."""
    return max((time for time in times if time is not None), default=default)


def cpu_percent(curves: Curves, start_s: float, end_s: float) -> float:
    """Mean CPU in use between two moments, in percent of all nodes."""
    total = sum(curves.timeline.nodes.values())
    return 100 * curves.cpu_millis.mean(start_s, end_s) / total if total else 0.0


def asked_percent(curves: Curves, start_s: float, end_s: float) -> float:
    """Mean CPU that running pods' authors asked for, in percent of all nodes; above 100 with overcommit."""
    total = sum(curves.timeline.nodes.values())
    return 100 * curves.asked_millis.mean(start_s, end_s) / total if total else 0.0


def off_peak_percent(curves: Curves, after_s: float) -> float:
    """Mean CPU in use over the plateaus with at most half of the most services."""
    timeline = curves.timeline
    most = max((step.services for step in timeline.steps), default=0)
    total = seconds = 0.0
    for index, step in enumerate(timeline.steps):
        begin, end = timeline.plateau(index)
        begin = max(begin, after_s)
        if 2 * step.services <= most and end > begin:
            total += cpu_percent(curves, begin, end) * (end - begin)
            seconds += end - begin
    return total / seconds if seconds else 0.0


def longest_wait_beside_surplus(curves: Curves) -> float:
    """Returns the longest that one service pod waited while some surplus trainer was at work."""
    end_s = curves.timeline.end_s
    surplus = curves.surplus_at_work
    longest = 0.0
    for lifetime in curves.of(Kind.SERVICE):
        span = waiting(lifetime)
        until = end_s if span.end_s is None else span.end_s
        pieces = surplus.pieces(span.start_s, until)
        longest = max(longest, sum(end - begin for begin, end, count in pieces if count > 0))
    return longest


def start_ups(curves: Curves, min_trainers: int) -> tuple[StartUp, ...]:
    """How every job started, in the order of submission."""
    end_s = curves.timeline.end_s
    job_starts = []
    for job, submitted_s in curves.timeline.submitted_s.items():
        level = curves.trainers[job]
        first = level.first(submitted_s, end_s, lambda count: count >= 1)
        whole = level.first(submitted_s, end_s, lambda count: count >= min_trainers)
        job_starts.append(
            StartUp(
                job,
                None if first is None else first - submitted_s,
                None if whole is None else whole - submitted_s,
            )
        )
    return tuple(job_starts)


def unfair_seconds(curves: Curves, min_trainers: int) -> float:
    """Seconds in which a job that had its minimum lacks it while another has more than its own."""
    timeline = curves.timeline
    whole_s = {
        start.job: timeline.submitted_s[start.job] + start.whole_s
        for start in start_ups(curves, min_trainers)
        if start.whole_s is not None
    }
    moments = {time for level in curves.trainers.values() for time in level.times}
    moments = {time for time in moments if time < timeline.end_s} | {timeline.end_s}
    seconds = 0.0
    for begin, end in pairwise(sorted(moments)):
        counts = {job: level.at(begin) for job, level in curves.trainers.items()}
        lacking = any(
            count < min_trainers <= _had(job, begin, whole_s, min_trainers)
            for job, count in counts.items()
        )
        if lacking and any(count > min_trainers for count in counts.values()):
            seconds += end - begin
    return seconds


def _had(job: str, time_s: float, whole_s: dict[str, float], min_trainers: int) -> int:
    return min_trainers if whole_s.get(job, float("inf")) <= time_s else 0


def jain(counts: Sequence[int]) -> float:
    """Jain's fairness index: 1 where all are equal, 1/n where one has everything.

    Source: Jain, Chiu, Hawe 1984. Nobody having anything is fair.
    """
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 1.0


def plateau_trainers(curves: Curves) -> tuple[dict[str, int], ...]:
    """Job -> trainers at work at the end of each plateau."""
    timeline = curves.timeline
    ends = [timeline.plateau(index)[1] for index in range(len(timeline.steps))]
    return tuple({job: level.before(end) for job, level in curves.trainers.items()} for end in ends)


def pending_percent(curves: Curves) -> float:
    """Returns the most surplus trainers that waited at once, in percent of the trainers wanted then."""
    pending: Level = curves.surplus_pending
    shares = (
        100 * pending.at(time) / max(1, curves.trainers_wanted.at(time)) for time in pending.times
    )
    return max(shares, default=0.0)


def competitors(
    timeline: Timeline, all_kills: Sequence[Kill] | None = None
) -> tuple[PodLifetime, ...]:
    """Trainers that took a node during a burst although the burst's services needed that node.

    A burst lasts from its first preemption until its last service runs. It needs the nodes
    on which a service of it was nominated, or got its place later than that trainer.
    """
    victims = kills(timeline) if all_kills is None else all_kills
    guilty: dict[str, PodLifetime] = {}
    for index, (before, after) in enumerate(pairwise(timeline.steps), start=1):
        if after.services > before.services:
            window = timeline.plateau(index)
            guilty.update(
                (lifetime.uid, lifetime) for lifetime in _competitors(timeline, victims, window)
            )
    return tuple(guilty.values())


def _competitors(
    timeline: Timeline, victims: Sequence[Kill], window: tuple[float, float]
) -> list[PodLifetime]:
    begin, end = window
    first = min(
        (
            kill.at_s
            for kill in victims
            if kill.cause is Cause.SERVICES and begin <= kill.at_s < end
        ),
        default=None,
    )
    if first is None:
        return []
    burst = [
        lifetime
        for lifetime in timeline.lifetimes
        if lifetime.kind is Kind.SERVICE and begin <= lifetime.created_s < end
    ]
    last = max((min(lifetime.running_s or end, end) for lifetime in burst), default=first)
    return [
        lifetime
        for lifetime in timeline.lifetimes
        if lifetime.kind is Kind.TRAINER
        and lifetime.bound_s is not None
        and first <= lifetime.bound_s < last
        and any(_needs(service, lifetime.node, lifetime.bound_s) for service in burst)
    ]


def _needs(service: PodLifetime, node: str, at_s: float) -> bool:
    """Returns whether a service that has no place yet at `at_s` was promised `node` or gets it later."""
    if service.bound_s is not None and service.bound_s <= at_s:
        return False
    promised = any(name == node for _, name in service.nominations)
    return promised or service.node == node
