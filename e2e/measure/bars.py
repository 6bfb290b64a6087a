"""The bars of the main job (issue "The main job, end to end"): what a run is held to (pure).

Names are stable: reports of different days are compared by them. A bar without a limit is
reported for comparison only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from e2e.measure import figures
from e2e.measure.curves import Curves
from e2e.measure.figures import Reclaim, Stages, StartUp
from e2e.measure.kills import Kill, causes, kills, needed_by_start, needed_by_steps
from e2e.measure.pods import Kind
from e2e.measure.record import Timeline

RECLAIM_S = 6.0
CPU_PERCENT = 91.0
WAIT_S = 6.0
JAIN = 0.98
KILLS_FACTOR = 1.2
PENDING_PERCENT = 5.0
DEMO_S = 300.0
EDL_CPU_S = 60.0
"""experiments.md: all of EDL together, over the whole demo."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure and what it is held to."""

    name: str
    value: float | None
    """None where there is none: it was never reached."""
    unit: str
    limit: float | None = None
    at_least: bool = False
    """Whether the limit is the least allowed; else it is the most."""

    @property
    def holds(self) -> bool:
        """A bar without a limit holds; one without a value does not."""
        if self.limit is None:
            return True
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything measured in one run."""

    reclaims: tuple[Reclaim, ...]
    stages: tuple[Stages, ...]
    """Where each reclaim's time went."""
    cpu_mean_percent: float
    cpu_off_peak_percent: float
    cpu_plateau_percent: tuple[float, ...]
    """At each plateau's end (mean of its last 5 s)."""
    longest_wait_s: float
    unfair_s: float
    start_ups: tuple[StartUp, ...]
    trainers: tuple[dict[str, int], ...]
    """Job -> trainers, at each plateau's end."""
    jain: tuple[float, ...]
    """At each plateau's end."""
    killed: int
    killed_causes: dict[str, int]
    killed_at_start: int
    """Before the first plateau ended."""
    needed_at_start: int
    needed_by_steps: tuple[int, ...]
    trainers_started: int
    pending_percent: float
    pending_peak: int
    competitors: int
    demo_s: float
    cpu_s: dict[str, float] = field(default_factory=dict)
    """Process -> CPU seconds it used."""
    edl_cpu_s: float | None = None
    """All of EDL together; None in a run without it."""
    others_percent: float = 0.0
    """Share of all cores that went to anything else meanwhile."""


_PLATEAU_END_S = 5.0


def measure(
    timeline: Timeline,
    *,
    min_trainers: int,
    warm_up_s: float,
    demo_s: float,
    cpu_s: dict[str, float] | None = None,
    edl: Sequence[str] = (),
    others_percent: float = 0.0,
) -> Figures:
    """All figures of a run.

    Args:
        timeline: What happened.
        min_trainers: Of every job.
        warm_up_s: Left out of the mean CPU use, from the first object on.
        demo_s: The whole demo after the build, wall clock.
        cpu_s: Process -> CPU seconds.
        edl: Which of these processes are EDL.
        others_percent: Share of all cores that went to anything else.
    """
    curves = Curves(timeline)
    found = kills(timeline)
    counted = cpu_s or {}
    warm_s = timeline.started_s + warm_up_s
    plateaus = [timeline.plateau(index) for index in range(len(timeline.steps))]
    trainers = figures.plateau_trainers(curves)
    return Figures(
        reclaims=figures.reclaims(curves),
        stages=figures.stages(curves, found),
        cpu_mean_percent=figures.cpu_percent(curves, warm_s, timeline.end_s),
        cpu_off_peak_percent=figures.off_peak_percent(curves, warm_s),
        cpu_plateau_percent=tuple(
            figures.cpu_percent(curves, max(begin, end - _PLATEAU_END_S), end)
            for begin, end in plateaus
        ),
        longest_wait_s=figures.longest_wait_beside_surplus(curves),
        unfair_s=figures.unfair_seconds(curves, min_trainers),
        start_ups=figures.start_ups(curves, min_trainers),
        trainers=trainers,
        jain=tuple(figures.jain(list(counts.values())) for counts in trainers),
        killed=len(found),
        killed_causes=causes(found),
        killed_at_start=_killed_at_start(timeline, found),
        needed_at_start=needed_by_start(curves),
        needed_by_steps=needed_by_steps(timeline),
        trainers_started=_started(curves),
        pending_percent=figures.pending_percent(curves),
        pending_peak=max(curves.surplus_pending.values, default=0),
        competitors=len(figures.competitors(timeline, found)),
        demo_s=demo_s,
        cpu_s=counted,
        edl_cpu_s=sum(counted.get(name, 0.0) for name in edl) if edl else None,
        others_percent=others_percent,
    )


def bars(seen: Figures, *, short: bool = False) -> tuple[Bar, ...]:
    """The bars of one run, in the order in which they are read.

    Args:
        seen: What was measured.
        short: A run too small and too brief to be held to CPU in use and to fair plateaus.
    """
    cpu_limit, jain_limit = (None, None) if short else (CPU_PERCENT, JAIN)
    firsts = [start.first_s for start in seen.start_ups]
    wholes = [start.whole_s for start in seen.start_ups]
    return (
        *(
            Bar(f"reclaim_{step.before}_to_{step.after}_s", step.seconds, "s", RECLAIM_S)
            for step in seen.reclaims
        ),
        Bar("cpu_in_use_mean_percent", seen.cpu_mean_percent, "%", cpu_limit, at_least=True),
        Bar("cpu_in_use_off_peak_percent", seen.cpu_off_peak_percent, "%"),
        Bar("service_pending_beside_surplus_s", seen.longest_wait_s, "s", WAIT_S),
        Bar("below_min_while_other_above_s", seen.unfair_s, "s", 0.0),
        Bar("jain_at_plateaus_min", min(seen.jain, default=None), "", jain_limit, at_least=True),
        Bar("first_trainer_mean_s", _mean(firsts), "s"),
        Bar("first_trainer_worst_s", _worst(firsts), "s"),
        Bar("whole_minimum_mean_s", _mean(wholes), "s"),
        Bar("whole_minimum_worst_s", _worst(wholes), "s"),
        Bar("trainers_killed", seen.killed, "pods", kills_limit(seen)),
        Bar("trainers_pending_percent", seen.pending_percent, "%", PENDING_PERCENT),
        Bar("trainers_placed_against_a_burst", seen.competitors, "pods", 0),
        Bar("cpu_used_by_others_percent", seen.others_percent, "%"),
        Bar("demo_s", seen.demo_s, "s", DEMO_S),
        *([Bar("edl_cpu_s", seen.edl_cpu_s, "s", EDL_CPU_S)] if seen.edl_cpu_s is not None else []),
    )


def kills_limit(seen: Figures) -> float:
    """How many kills are allowed: 1.2 x what services force, and the start's fair shares."""
    return round(KILLS_FACTOR * sum(seen.needed_by_steps) + seen.needed_at_start, 1)


def comparison(ours: Figures, plain: Figures) -> tuple[Bar, ...]:
    """What EDL is held to beside plain Kubernetes in the same minutes on the same machine."""
    ratios = [
        (mine.seconds / theirs.seconds if mine.seconds is not None and theirs.seconds else None)
        for mine, theirs in zip(ours.reclaims, plain.reclaims, strict=True)
    ]
    names = [f"reclaim_{step.before}_to_{step.after}_over_plain" for step in ours.reclaims]
    return (
        *(Bar(name, ratio, "x", 1.25) for name, ratio in zip(names, ratios, strict=True)),
        Bar(
            "cpu_in_use_mean_over_plain_points",
            ours.cpu_mean_percent - plain.cpu_mean_percent,
            "points",
            0.0,
            at_least=True,
        ),
        Bar(
            "cpu_in_use_off_peak_over_plain_points",
            ours.cpu_off_peak_percent - plain.cpu_off_peak_percent,
            "points",
            0.0,
            at_least=True,
        ),
    )


def _killed_at_start(timeline: Timeline, found: Sequence[Kill]) -> int:
    return sum(kill.at_s < timeline.plateau(0)[1] for kill in found)


def _started(curves: Curves) -> int:
    return sum(
        life.running_s is not None for life in curves.timeline.lives if life.kind is Kind.TRAINER
    )


def _mean(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return fmean(known) if known and len(known) == len(times) else None


def _worst(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None
