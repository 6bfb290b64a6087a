"""The results of an experiment, for a terminal and for the report."""

import dataclasses
from typing import Any

from rich.table import Table

from e2e.experiments.run import Experiment
from e2e.measure import report


def raw(run: Experiment) -> dict[str, Any]:
    """All figures and curves of a run, for the report's JSON."""
    outcome = report.rounded(dataclasses.asdict(run.outcome))
    return report.run(run.figures, run.curves) | {"outcome": outcome}


def arrivals(run: Experiment) -> Table:
    """Returns the table of jobs: how each one started, and its trainers."""
    table = Table(title="jobs in order of arrival", title_justify="left")
    table.add_column("job")
    for heading in ("first trainer, s", "whole minimum, s", "trainers after 60 s", "at the end"):
        table.add_column(heading, justify="right")
    outcome = run.outcome
    for start in run.figures.start_ups:
        table.add_row(
            start.job,
            _seconds(start.first_s),
            _seconds(start.whole_s),
            str(outcome.settled_trainers[start.job]),
            str(outcome.last_trainers[start.job]),
        )
    return table


def times(run: Experiment) -> Table:
    """Returns the durations of a trainer's stages, by which the two runs of an experiment are compared."""
    table = Table(title="a trainer's steps, seconds", title_justify="left")
    table.add_column("step")
    for heading in ("mean", "worst"):
        table.add_column(heading, justify="right")
    for step, step_times in (
        ("created until it has a node", run.outcome.bind),
        ("until it runs", run.outcome.start),
        ("deletion until it has ended", run.outcome.stop),
    ):
        table.add_row(step, _seconds(step_times.mean_s), _seconds(step_times.worst_s))
    return table


def _seconds(time_s: float | None) -> str:
    return "never" if time_s is None else f"{time_s:.2f}"
