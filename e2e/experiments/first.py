"""The first experiment: jobs alone, one after the other, each of which wants more than there is.

Its figures and the bars they are held to (pure). What is compared with, and where the limits come
from: docs/measurements.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from e2e.measure import arrivals, figures
from e2e.measure.bars import Bar, Figures
from e2e.measure.curves import Curves
from e2e.measure.pods import Kind
from e2e.measure.record import Timeline
from e2e.workload import Scenario

SETTLED_S = 60.0
"""After the last submission: by then everything must be shared."""
FIRST_MEAN_S = 2.0
FIRST_WORST_S = 5.0
WHOLE_WORST_S = 6.0
JAIN = 0.99
TRAINERS = 275
PENDING_PERCENT = 5.0
KILLED = 490
"""Volcano killed 491 for the same fairness."""
KILLED_OF_UNAVOIDABLE = 1.25
EDL_CPU_S = 60.0


@dataclass(frozen=True, slots=True)
class Unavoidable:
    """How many trainers the arrivals alone cost; see `e2e.measure.arrivals`."""

    exact: int
    tolerant: int
    """At Jain's index `JAIN`: what kills are held to."""
    once: int


@dataclass(frozen=True, slots=True)
class Times:
    """How long one thing took, over all trainers it happened to; None where to none."""

    mean_s: float | None
    worst_s: float | None

    @classmethod
    def of(cls, times: Iterable[float | None]) -> "Times":
        """The mean and the worst of the times that are known."""
        known = [time for time in times if time is not None]
        return cls(fmean(known) if known else None, max(known, default=None))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What this experiment asks beside the figures of every run."""

    settled_trainers: dict[str, int]
    """Job -> trainers at work `SETTLED_S` after the last submission."""
    last_trainers: dict[str, int]
    """The same at the end."""
    jobs_below_min: int
    """At the worse of the two moments."""
    bound: int
    """The most trainers that nodes hold beside everything else, with system pods where they are."""
    bound_of_scenario: int
    """The same with system pods where they harm least."""
    unavoidable: Unavoidable
    bind: Times
    """From a trainer's creation until it has a node."""
    start: Times
    """From then until it runs."""
    stop: Times
    """From the word to stop until it has ended."""


def outcome(curves: Curves, scenario: Scenario) -> Outcome:
    """The figures of a run of `scenario`."""
    timeline = curves.timeline
    settled_s = min(max(timeline.submitted_s.values()) + SETTLED_S, timeline.end_s)
    settled = {job: level.before(settled_s) for job, level in curves.trainers.items()}
    last = {job: level.before(timeline.end_s) for job, level in curves.trainers.items()}
    least = scenario.min_trainers
    totals = arrivals.bounds(scenario)
    lives = [life for life in timeline.lives if life.kind is Kind.TRAINER]
    return Outcome(
        settled_trainers=settled,
        last_trainers=last,
        jobs_below_min=max(
            sum(count < least for count in counts.values()) for counts in (settled, last)
        ),
        bound=arrivals.bounds(scenario, _left(timeline))[-1],
        bound_of_scenario=totals[-1],
        unavoidable=Unavoidable(
            exact=arrivals.exact(totals),
            tolerant=arrivals.tolerant(totals, least, JAIN),
            once=arrivals.once(totals),
        ),
        bind=Times.of(_between(life.created_s, life.bound_s) for life in lives),
        start=Times.of(_between(life.bound_s, life.running_s) for life in lives),
        stop=Times.of(_between(life.killed_s, life.ended_s) for life in lives),
    )


def _left(timeline: Timeline) -> list[int]:
    """What system pods leave of each node's CPU."""
    left = dict(timeline.nodes)
    for life in timeline.lives:
        if life.kind is Kind.SYSTEM and life.node in left:
            left[life.node] -= life.cpu_millis
    return list(left.values())


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else end_s - start_s


def bars(
    seen: Figures, found: Outcome, *, prefix: str = "", short: bool = False
) -> tuple[Bar, ...]:
    """The bars of one run, in the order in which they are read.

    Args:
        seen: The figures of every run.
        found: Those of this experiment.
        prefix: Before every name, so that two runs can stand in one report.
        short: A run too small to be held to the numbers of trainers of the full one.
    """
    firsts = Times.of(start.first_s for start in seen.start_ups)
    wholes = Times.of(start.whole_s for start in seen.start_ups)
    started = all(start.whole_s is not None for start in seen.start_ups)
    counts = list(found.settled_trainers.values())
    unavoidable = found.unavoidable
    killed = (None, None) if short else (KILLED, KILLED_OF_UNAVOIDABLE)
    edl_s = seen.edl_cpu_s
    held = (
        Bar("first_trainer_mean_s", firsts.mean_s if started else None, "s", FIRST_MEAN_S),
        Bar("first_trainer_worst_s", firsts.worst_s if started else None, "s", FIRST_WORST_S),
        Bar("whole_minimum_worst_s", wholes.worst_s if started else None, "s", WHOLE_WORST_S),
        Bar("jain_60s_after_last", figures.jain(counts), "", JAIN, at_least=True),
        Bar("trainers_60s_after_last", sum(counts), "", None if short else TRAINERS, at_least=True),
        Bar("trainers_bound", found.bound, ""),
        Bar("trainers_bound_of_scenario", found.bound_of_scenario, ""),
        Bar("jobs_below_min", found.jobs_below_min, "", 0),
        Bar("trainers_pending_percent", seen.pending_percent, "%", PENDING_PERCENT),
        Bar("trainers_pending_peak", seen.pending_peak, "pods"),
        Bar("killed", seen.killed, "pods", killed[0]),
        Bar("killed_of_unavoidable", _ratio(seen.killed, unavoidable.tolerant), "x", killed[1]),
        Bar("killed_of_exact_shares", _ratio(seen.killed, unavoidable.exact), "x"),
        Bar("killed_of_shares_moved_once", _ratio(seen.killed, unavoidable.once), "x"),
        Bar("cpu_in_use_at_stop_percent", seen.cpu_plateau_percent[-1], "%"),
        *([] if edl_s is None else [Bar("edl_cpu_seconds", edl_s, "s", EDL_CPU_S)]),
        *([] if edl_s is None else [Bar("cpu_used_by_others_percent", seen.others_percent, "%")]),
    )
    return tuple(
        Bar(prefix + bar.name, bar.value, bar.unit, bar.limit, bar.at_least) for bar in held
    )


def _ratio(killed: int, unavoidable: int) -> float | None:
    """None where nothing is unavoidable and something was killed all the same."""
    if not unavoidable:
        return None if killed else 0.0
    return killed / unavoidable
