"""Reports of a run: the same figures as JSON for machines and as tables for people."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table

from e2e.measure.criteria import Criterion, Figures
from e2e.measure.curves import Curves

CURVE_PERIOD_S = 0.5
_DIGITS = 3


def document(
    *,
    machine: dict[str, Any],
    commit: str,
    criteria: Sequence[Criterion],
    runs: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Returns the report's JSON: machine, commit, criteria, and the raw figures and curves of each run."""
    return {
        "machine": machine,
        "commit": commit,
        "bars": [_criterion(criterion) for criterion in criteria],
        **runs,
    }


def run(figures: Figures, curves: Curves) -> dict[str, Any]:
    """Raw figures and curves of one run."""
    return {"figures": rounded(dataclasses.asdict(figures)), "curves": sampled(curves)}


def sampled(curves: Curves, period_s: float = CURVE_PERIOD_S) -> dict[str, Any]:
    """Returns the curves at a fixed period; second 0 is the first job's submission.

    How long the services before it took to start differs from run to run; counted so, runs
    can be laid beside each other.
    """
    timeline = curves.timeline
    zero_s = min(timeline.submitted_s.values(), default=timeline.started_s)
    count = int((timeline.end_s - timeline.started_s) / period_s) + 1
    moments = [timeline.started_s + index * period_s for index in range(count)]
    total = max(1, sum(timeline.nodes.values()))
    return {
        "seconds": [round(moment - zero_s, _DIGITS) for moment in moments],
        "services_wanted": [curves.services_wanted.at(moment) for moment in moments],
        "services_running": [curves.services.at(moment) for moment in moments],
        "services_pending": [curves.services_waiting.at(moment) for moment in moments],
        "trainers_running": {
            job: [level.at(moment) for moment in moments] for job, level in curves.trainers.items()
        },
        "surplus_trainers_pending": [curves.surplus_pending.at(moment) for moment in moments],
        "trainers_killed": [curves.killed.at(moment) for moment in moments],
        "cpu_in_use_percent": [
            round(100 * curves.cpu_millis.at(moment) / total, 2) for moment in moments
        ],
    }


def write(path: Path, report: dict[str, Any]) -> None:
    """Writes the report, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    draft.replace(path)


def criterion_table(criteria: Sequence[Criterion], title: str) -> Table:
    """Returns the criteria as a table for a terminal."""
    table = Table(title=title, title_justify="left")
    table.add_column("criterion")
    for heading in ("measured", "limit"):
        table.add_column(heading, justify="right")
    table.add_column("holds")
    for criterion in criteria:
        sign = "≥" if criterion.at_least else "≤"
        limit = "" if criterion.limit is None else f"{sign} {_number(criterion.limit)}"
        verdict = (
            "" if criterion.limit is None else ("[green]yes" if criterion.holds else "[red]NO")
        )
        table.add_row(
            criterion.name, f"{_number(criterion.value)} {criterion.unit}".strip(), limit, verdict
        )
    return table


def plateau_table(figures: Figures, services: Sequence[int]) -> Table:
    """What every plateau ended in: shares, fairness, CPU in use."""
    table = Table(title="at the end of each plateau", title_justify="left")
    for heading in ("services", "CPU %", "Jain", "trainers per job"):
        table.add_column(heading, justify="right")
    rows = zip(services, figures.cpu_plateau_percent, figures.jain, figures.trainers, strict=True)
    for service_count, percent, fairness, trainers in rows:
        counts = " ".join(f"{count:>2}" for count in trainers.values())
        table.add_row(str(service_count), f"{percent:.1f}", f"{fairness:.3f}", counts)
    return table


def stage_table(figures: Figures) -> Table:
    """Where the time of each step up went."""
    table = Table(title="steps up, seconds until the last ...", title_justify="left")
    table.add_column("services")
    for heading in (
        *("pod was created", "trainer was deleted", "trainer ended"),
        *("service got a node", "service ran"),
    ):
        table.add_column(heading, justify="right")
    for step, stage in zip(figures.reclaims, figures.stages, strict=True):
        times = (stage.created_s, stage.told_s, stage.stopped_s, stage.bound_s, stage.running_s)
        table.add_row(f"{step.before} -> {step.after}", *(f"{time:.1f}" for time in times))
    return table


def kill_table(figures: Figures) -> Table:
    """Kills of trainers by cause, and the number that was unavoidable."""
    table = Table(title="trainers told to stop", title_justify="left")
    table.add_column("cause")
    table.add_column("pods", justify="right")
    for cause, count in figures.killed_causes.items():
        if count:
            table.add_row(cause, str(count))
    table.add_section()
    table.add_row("all, of those started", f"{figures.killed} of {figures.trainers_started}")
    table.add_row("of these while jobs arrived", str(figures.killed_at_start))
    table.add_row("least that arriving jobs' shares need", str(figures.needed_at_start))
    steps = " + ".join(map(str, figures.needed_by_steps))
    table.add_row("least that services' bursts need", steps)
    return table


def _criterion(criterion: Criterion) -> dict[str, Any]:
    return {
        "name": criterion.name,
        "value": rounded(criterion.value),
        "unit": criterion.unit,
        "limit": criterion.limit,
        "limit_is": "least" if criterion.at_least else "most",
        "holds": criterion.holds,
    }


def _number(value: float | None) -> str:
    if value is None:
        return "never"
    return f"{value:.0f}" if value == int(value) else f"{value:.{2 if value < 100 else 1}f}"


def rounded(value: Any) -> Any:
    """Returns a copy of the value with its numbers rounded."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
