"""Runs an experiment on a real control plane or in virtual time, and prints its measurements."""

from dataclasses import dataclass

from e2e.demo.run import Run
from e2e.experiments import first, virtual
from e2e.experiments.first import ArrivalOutcome
from e2e.measure.criteria import Criterion, Figures, measure
from e2e.measure.curves import Curves
from e2e.workload import Scenario

REAL = "real"
VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run of the first experiment."""

    name: str
    """`REAL` or `VIRTUAL`."""
    curves: Curves
    figures: Figures
    outcome: ArrivalOutcome

    def criteria(self, *, short: bool) -> tuple[Criterion, ...]:
        """What it is held to; the names of a virtual run begin with `virtual_`."""
        prefix = "virtual_" if self.name == VIRTUAL else ""
        return first.criteria(self.figures, self.outcome, prefix=prefix, short=short)


def of_real(run: Run, scenario: Scenario) -> Experiment:
    """The result of a run on a cluster."""
    return Experiment(REAL, run.curves, run.figures, first.outcome(run.curves, scenario))


def in_virtual_time(scenario: Scenario) -> Experiment:
    """Plays it in virtual time: seconds."""
    timeline = virtual.play(scenario)
    curves = Curves(timeline)
    figures = measure(
        timeline,
        min_trainers=scenario.min_trainers,
        warm_up_s=scenario.warm_up_s,
        demo_s=timeline.end_s - timeline.started_s,
    )
    return Experiment(VIRTUAL, curves, figures, first.outcome(curves, scenario))
