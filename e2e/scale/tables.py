"""The figures of all variants, for a terminal and for the report."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from e2e.measure import report
from e2e.scale.figures import ScaleFigures


def raw(figures: ScaleFigures) -> dict[str, Any]:
    """All figures of a variant, for the report's JSON."""
    return dict(report.rounded(dataclasses.asdict(figures)))


def costs(runs: Mapping[str, ScaleFigures]) -> Table:
    """Pace and CPU seconds of each variant; in brackets as multiples of the first one."""
    table = Table(title="trainers and a burst", title_justify="left")
    table.add_column("")
    for heading in ("pods/s", "burst, s", "scheduler", "API server, etcd", "EDL", "CPU s in all"):
        table.add_column(heading, justify="right")
    table.add_column("others", justify="right")
    first = next(iter(runs.values()))
    for name, run in runs.items():
        table.add_row(
            name,
            _ratio(run.trainers.pods_per_s, first.trainers.pods_per_s),
            _ratio(run.burst.seconds, first.burst.seconds),
            _ratio(run.scheduler_s, first.scheduler_s),
            _ratio(run.api_s, first.api_s),
            f"{run.edl_s:.1f}",
            _ratio(run.total_s, first.total_s),
            f"{run.others_percent:.0f} %",
        )
    return table


def writes(runs: Mapping[str, ScaleFigures]) -> Table:
    """Returns the writes of all clients per trainer, until all trainers run."""
    table = Table(title="writes for each trainer", title_justify="left")
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")
    kinds = {kind for run in runs.values() for kind in run.trainers.writes}
    for kind in sorted(kinds):
        counts = [run.trainers.writes.get(kind, 0) / run.trainers.pods for run in runs.values()]
        table.add_row(kind, *(f"{count:.3f}" for count in counts))
    return table


def ended_watches(runs: Mapping[str, ScaleFigures]) -> str:
    """Returns how many watches of pods the API server ended in both phases, in one line."""
    counts = (
        f"{name} {run.trainers.ended_watches} / {run.burst.ended_watches}"
        for name, run in runs.items()
    )
    return f"watches of pods that the API server ended, trainers / burst: {', '.join(counts)}"


def _ratio(figure: float, first: float) -> str:
    return f"{figure:.1f} ({figure / first:.2f})" if first else f"{figure:.1f}"
