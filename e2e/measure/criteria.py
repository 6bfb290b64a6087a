"""The acceptance criteria of the main job (issue "The main job, end to end"). Pure.

Names are stable: reports of different days are compared by them. A criterion without a limit is
reported for comparison only.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from e2e.measure import figures
from e2e.measure.curves import Curves
from e2e.measure.figures import Reclaim, Stages, StartUp
from e2e.measure.kills import Kill, causes, kills, needed_by_start, needed_by_steps
from e2e.measure.pods import Kind
from e2e.measure.record import Timeline
from e2e.measure.refusals import refusals

RECLAIM_S = 6.0
CPU_PERCENT = 91.0
WAIT_S = 6.0
JAIN = 0.98
KILLS_FACTOR = 1.2
PENDING_PERCENT = 5.0
DEMO_S = 300.0
RUNS_FACTOR = 1.25
"""How much worse than another run on the same machine a figure may be."""
_OVERCOMMIT_YIELD = 0.7
"""How much of what overcommit adds must be trainers: quotas and whole nodes take their part."""
EDL_CPU_S = 60.0
"""experiments.md: all of EDL together, over the whole demo."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """An acceptance criterion: one figure and its limit."""

    name: str
    value: float | None
    """None if it was never reached."""
    unit: str
    limit: float | None = None
    at_least: bool = False
    """Whether the limit is a minimum; otherwise it is a maximum."""

    @property
    def holds(self) -> bool:
        """Whether it is met: always without a limit, never without a value."""
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
    refused: dict[str, int]
    """Kind -> pods that nodes refused because their room was given away twice."""
    refused_services_s: tuple[float | None, ...]
    """How long each refused service took from its binding until another ran in its place."""
    demo_s: float
    cpu_s: dict[str, float] = field(default_factory=dict)
    """Process -> CPU seconds it used."""
    edl_cpu_s: float | None = None
    """All of EDL together; None in a run without it."""
    others_percent: float = 0.0
    """Share of all cores that went to anything else meanwhile."""
    trainers_mean: float = 0.0
    """Trainers at work, from the end of the warm-up on."""
    cpu_asked_mean_percent: float = 0.0
    """CPU in the limits of running pods; a pod without one counts with its request."""
    trainer_limits_peak_cpu: float = 0.0
    """The largest sum of the CPU limits of trainers at one moment."""


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
    all_kills = kills(timeline)
    counted = cpu_s or {}
    warm_s = timeline.started_s + warm_up_s
    plateaus = [timeline.plateau(index) for index in range(len(timeline.steps))]
    trainers = figures.plateau_trainers(curves)
    refused_pods = refusals(timeline)
    return Figures(
        reclaims=figures.reclaims(curves),
        stages=figures.stages(curves, all_kills),
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
        killed=len(all_kills),
        killed_causes=causes(all_kills),
        killed_at_start=_killed_at_start(timeline, all_kills),
        needed_at_start=needed_by_start(curves),
        needed_by_steps=needed_by_steps(timeline),
        trainers_started=_started(curves),
        pending_percent=figures.pending_percent(curves),
        pending_peak=max(curves.surplus_pending.values, default=0),
        competitors=len(figures.competitors(timeline, all_kills)),
        refused=dict(Counter(refusal.kind.value for refusal in refused_pods)),
        refused_services_s=tuple(
            refusal.replaced_s for refusal in refused_pods if refusal.kind is Kind.SERVICE
        ),
        demo_s=demo_s,
        cpu_s=counted,
        edl_cpu_s=sum(counted.get(name, 0.0) for name in edl) if edl else None,
        others_percent=others_percent,
        trainers_mean=sum(level.mean(warm_s, timeline.end_s) for level in curves.trainers.values()),
        cpu_asked_mean_percent=figures.asked_percent(curves, warm_s, timeline.end_s),
        trainer_limits_peak_cpu=max(curves.trainer_limits.values, default=0) / 1000,
    )


def criteria(run_figures: Figures, *, short: bool = False) -> tuple[Criterion, ...]:
    """Returns the criteria of one run, in the order of the report.

    Args:
        run_figures: The figures of the run.
        short: A run too small and too short for limits on CPU in use and on fairness.
    """
    cpu_limit, jain_limit = (None, None) if short else (CPU_PERCENT, JAIN)
    firsts = [start.first_s for start in run_figures.start_ups]
    wholes = [start.whole_s for start in run_figures.start_ups]
    return (
        *(
            Criterion(f"reclaim_{step.before}_to_{step.after}_s", step.seconds, "s", RECLAIM_S)
            for step in run_figures.reclaims
        ),
        Criterion(
            "cpu_in_use_mean_percent", run_figures.cpu_mean_percent, "%", cpu_limit, at_least=True
        ),
        Criterion("cpu_in_use_off_peak_percent", run_figures.cpu_off_peak_percent, "%"),
        Criterion("service_pending_beside_surplus_s", run_figures.longest_wait_s, "s", WAIT_S),
        Criterion("below_min_while_other_above_s", run_figures.unfair_s, "s", 0.0),
        Criterion(
            "jain_at_plateaus_min",
            min(run_figures.jain, default=None),
            "",
            jain_limit,
            at_least=True,
        ),
        Criterion("first_trainer_mean_s", _mean(firsts), "s"),
        Criterion("first_trainer_worst_s", _worst(firsts), "s"),
        Criterion("whole_minimum_mean_s", _mean(wholes), "s"),
        Criterion("whole_minimum_worst_s", _worst(wholes), "s"),
        Criterion("trainers_killed", run_figures.killed, "pods", kills_limit(run_figures)),
        Criterion("trainers_pending_percent", run_figures.pending_percent, "%", PENDING_PERCENT),
        Criterion("trainers_placed_against_a_burst", run_figures.competitors, "pods", 0),
        Criterion("pods_refused_by_nodes", sum(run_figures.refused.values()), "pods", 0),
        *(
            [Criterion("refused_service_worst_s", _worst(run_figures.refused_services_s), "s")]
            if run_figures.refused_services_s
            else []
        ),
        Criterion("cpu_used_by_others_percent", run_figures.others_percent, "%"),
        Criterion("demo_s", run_figures.demo_s, "s", DEMO_S),
        *(
            [Criterion("edl_cpu_s", run_figures.edl_cpu_s, "s", EDL_CPU_S)]
            if run_figures.edl_cpu_s is not None
            else []
        ),
    )


def kills_limit(run_figures: Figures) -> float:
    """Allowed kills: 1.2 x what services force, plus what fair shares at the start need."""
    return round(KILLS_FACTOR * sum(run_figures.needed_by_steps) + run_figures.needed_at_start, 1)


def _reclaim_ratios(ours: Figures, others: Figures, over: str) -> tuple[Criterion, ...]:
    """How much longer each reclaim takes than in another run, which the names call `over`."""
    ratios = [
        (
            our_reclaim.seconds / other_reclaim.seconds
            if our_reclaim.seconds is not None and other_reclaim.seconds
            else None
        )
        for our_reclaim, other_reclaim in zip(ours.reclaims, others.reclaims, strict=True)
    ]
    names = [f"reclaim_{step.before}_to_{step.after}_over_{over}" for step in ours.reclaims]
    return tuple(
        Criterion(name, ratio, "x", RUNS_FACTOR) for name, ratio in zip(names, ratios, strict=True)
    )


def in_cluster_comparison(inside: Figures, beside: Figures) -> tuple[Criterion, ...]:
    """Returns the criteria of EDL in the cluster relative to EDL as processes beside it, on the same machine."""
    jain = min(inside.jain, default=0.0), min(beside.jain, default=0.0)
    return (
        *_reclaim_ratios(inside, beside, "beside"),
        Criterion("jain_beside_over_in_cluster", _ratio(jain[1], jain[0]), "x", RUNS_FACTOR),
        Criterion(
            "trainers_killed_over_beside",
            _ratio(float(inside.killed), float(beside.killed)),
            "x",
            RUNS_FACTOR,
        ),
    )


def _ratio(one: float, other: float) -> float | None:
    return one / other if other else None


def comparison(ours: Figures, plain: Figures) -> tuple[Criterion, ...]:
    """Returns the criteria of EDL relative to plain Kubernetes on the same machine."""
    return (
        *_reclaim_ratios(ours, plain, "plain"),
        Criterion(
            "cpu_in_use_mean_over_plain_points",
            ours.cpu_mean_percent - plain.cpu_mean_percent,
            "points",
            0.0,
            at_least=True,
        ),
        Criterion(
            "cpu_in_use_off_peak_over_plain_points",
            ours.cpu_off_peak_percent - plain.cpu_off_peak_percent,
            "points",
            0.0,
            at_least=True,
        ),
    )


def overcommit_comparison(
    ours: Figures, base: Figures, ratio: float, quota_cpu: float
) -> tuple[Criterion, ...]:
    """Returns the criteria of overcommit relative to none, on the same machine.

    Args:
        ours: With overcommit.
        base: Without.
        ratio: Limit of a trainer divided by its request.
        quota_cpu: The bound of the limits of all trainers.
    """
    trainers = _ratio(ours.trainers_mean, base.trainers_mean)
    least = 1.0 + _OVERCOMMIT_YIELD * (ratio - 1.0)
    return (
        *_reclaim_ratios(ours, base, "without"),
        Criterion("trainers_mean_over_without", trainers, "x", least, at_least=True),
        Criterion(
            "cpu_asked_mean_percent",
            ours.cpu_asked_mean_percent,
            "%",
            base.cpu_asked_mean_percent,
            at_least=True,
        ),
        Criterion("trainer_limits_peak_cpu", ours.trainer_limits_peak_cpu, "CPU", quota_cpu),
    )


def _killed_at_start(timeline: Timeline, all_kills: Sequence[Kill]) -> int:
    return sum(kill.at_s < timeline.plateau(0)[1] for kill in all_kills)


def _started(curves: Curves) -> int:
    return sum(
        lifetime.running_s is not None
        for lifetime in curves.timeline.lifetimes
        if lifetime.kind is Kind.TRAINER
    )


def _mean(times: Sequence[float | None]) -> float | None:
    reached_times = [time for time in times if time is not None]
    return fmean(reached_times) if reached_times and len(reached_times) == len(times) else None


def _worst(times: Sequence[float | None]) -> float | None:
    reached_times = [time for time in times if time is not None]
    return max(reached_times) if reached_times and len(reached_times) == len(times) else None
