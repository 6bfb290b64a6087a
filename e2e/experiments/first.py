"""The first experiment: only jobs, one after the other, each of which wants more than the capacity.

Its figures and their acceptance criteria (pure). What is compared with, and where the limits come
from: decision 0003.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from e2e.measure import arrivals, figures
from e2e.measure.criteria import Criterion, Figures
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
class StageTimes:
    """Mean and worst duration of one stage over all trainers; None without any."""

    mean_s: float | None
    worst_s: float | None

    @classmethod
    def of(cls, times: Iterable[float | None]) -> "StageTimes":
        """Returns the mean and the worst of the times that are known."""
        finite_times = [time for time in times if time is not None]
        return cls(fmean(finite_times) if finite_times else None, max(finite_times, default=None))


@dataclass(frozen=True, slots=True)
class ArrivalOutcome:
    """The figures of this experiment in addition to those of every run."""

    settled_trainers: dict[str, int]
    """Job -> trainers at work `SETTLED_S` after the last submission."""
    last_trainers: dict[str, int]
    """Trainers by job at the end."""
    jobs_below_min: int
    """At the worse of the two moments."""
    bound: int
    """Returns the most trainers that fit on nodes with all other pods, given the places of system pods."""
    bound_of_scenario: int
    """The bound with system pods where they harm least."""
    unavoidable: Unavoidable
    bind: StageTimes
    """From a trainer's creation until it has a node."""
    start: StageTimes
    """From then until it runs."""
    stop: StageTimes
    """From the word to stop until it has ended."""


def outcome(curves: Curves, scenario: Scenario) -> ArrivalOutcome:
    """Returns the figures of a run of `scenario`."""
    timeline = curves.timeline
    settled_s = min(max(timeline.submitted_s.values()) + SETTLED_S, timeline.end_s)
    settled = {job: level.before(settled_s) for job, level in curves.trainers.items()}
    last = {job: level.before(timeline.end_s) for job, level in curves.trainers.items()}
    least = scenario.min_trainers
    totals = arrivals.bounds(scenario)
    lifetimes = [lifetime for lifetime in timeline.lifetimes if lifetime.kind is Kind.TRAINER]
    return ArrivalOutcome(
        settled_trainers=settled,
        last_trainers=last,
        jobs_below_min=max(
            sum(count < least for count in counts.values()) for counts in (settled, last)
        ),
        bound=arrivals.bounds(scenario, _free_millis(timeline))[-1],
        bound_of_scenario=totals[-1],
        unavoidable=Unavoidable(
            exact=arrivals.exact(totals),
            tolerant=arrivals.tolerant(totals, least, JAIN),
            once=arrivals.once(totals),
        ),
        bind=StageTimes.of(
            _between(lifetime.created_s, lifetime.bound_s) for lifetime in lifetimes
        ),
        start=StageTimes.of(
            _between(lifetime.bound_s, lifetime.running_s) for lifetime in lifetimes
        ),
        stop=StageTimes.of(_between(lifetime.killed_s, lifetime.ended_s) for lifetime in lifetimes),
    )


def _free_millis(timeline: Timeline) -> list[int]:
    """What system pods leave of each node's CPU."""
    free_millis = dict(timeline.nodes)
    for lifetime in timeline.lifetimes:
        if lifetime.kind is Kind.SYSTEM and lifetime.node in free_millis:
            free_millis[lifetime.node] -= lifetime.cpu_millis
    return list(free_millis.values())


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else end_s - start_s


def criteria(
    run_figures: Figures, run_outcome: ArrivalOutcome, *, prefix: str = "", short: bool = False
) -> tuple[Criterion, ...]:
    """Returns the criteria of one run, in the order of the report.

    Args:
        run_figures: The figures of every run.
        run_outcome: Those of this experiment.
        prefix: Before every name, so that two runs can stand in one report.
        short: A run too small to be held to the numbers of trainers of the full one.
    """
    firsts = StageTimes.of(start.first_s for start in run_figures.start_ups)
    wholes = StageTimes.of(start.whole_s for start in run_figures.start_ups)
    started = all(start.whole_s is not None for start in run_figures.start_ups)
    counts = list(run_outcome.settled_trainers.values())
    unavoidable = run_outcome.unavoidable
    killed = (None, None) if short else (KILLED, KILLED_OF_UNAVOIDABLE)
    edl_s = run_figures.edl_cpu_s
    results = (
        Criterion("first_trainer_mean_s", firsts.mean_s if started else None, "s", FIRST_MEAN_S),
        Criterion("first_trainer_worst_s", firsts.worst_s if started else None, "s", FIRST_WORST_S),
        Criterion("whole_minimum_worst_s", wholes.worst_s if started else None, "s", WHOLE_WORST_S),
        Criterion("jain_60s_after_last", figures.jain(counts), "", JAIN, at_least=True),
        Criterion(
            "trainers_60s_after_last", sum(counts), "", None if short else TRAINERS, at_least=True
        ),
        Criterion("trainers_bound", run_outcome.bound, ""),
        Criterion("trainers_bound_of_scenario", run_outcome.bound_of_scenario, ""),
        Criterion("jobs_below_min", run_outcome.jobs_below_min, "", 0),
        Criterion("trainers_pending_percent", run_figures.pending_percent, "%", PENDING_PERCENT),
        Criterion("trainers_pending_peak", run_figures.pending_peak, "pods"),
        Criterion("killed", run_figures.killed, "pods", killed[0]),
        Criterion(
            "killed_of_unavoidable",
            _ratio(run_figures.killed, unavoidable.tolerant),
            "x",
            killed[1],
        ),
        Criterion("killed_of_exact_shares", _ratio(run_figures.killed, unavoidable.exact), "x"),
        Criterion("killed_of_shares_moved_once", _ratio(run_figures.killed, unavoidable.once), "x"),
        Criterion("cpu_in_use_at_stop_percent", run_figures.cpu_plateau_percent[-1], "%"),
        *([] if edl_s is None else [Criterion("edl_cpu_seconds", edl_s, "s", EDL_CPU_S)]),
        *(
            []
            if edl_s is None
            else [Criterion("cpu_used_by_others_percent", run_figures.others_percent, "%")]
        ),
    )
    return tuple(
        Criterion(
            prefix + criterion.name,
            criterion.value,
            criterion.unit,
            criterion.limit,
            criterion.at_least,
        )
        for criterion in results
    )


def _ratio(killed: int, unavoidable: int) -> float | None:
    """None where nothing is unavoidable and something was killed all the same."""
    if not unavoidable:
        return None if killed else 0.0
    return killed / unavoidable
