"""Draws the runs of an experiment side by side: trainers, CPU in use, trainers killed so far."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.demo.picture import cpu_panel, tidy, trainers_panel
from e2e.picture import page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_IN, _HEIGHT_IN = 9.0, 11.0
_KILLED = "#c44536"


def draw(path: Path, runs: dict[str, dict[str, Any]], title: str) -> None:
    """Writes the picture.

    Args:
        path: A PNG file.
        runs: Name -> sampled curves (`e2e.measure.report.sampled`); one column each.
        title: Above all.
    """
    with page(path, title, width_in=_WIDTH_IN * len(runs), height_in=_HEIGHT_IN) as figure:
        panels = figure.subplots(
            3, len(runs), sharex=True, sharey="row", squeeze=False, height_ratios=[5, 3, 3]
        )
        for column, (name, curves) in enumerate(runs.items()):
            trainers, cpu, killed = (row[column] for row in panels)
            trainers_panel(trainers, curves)
            cpu_panel(cpu, curves, name)
            _killed(killed, curves, name)
            tidy([trainers, cpu, killed], curves, stacked=trainers)


def _killed(panel: Axes, curves: dict[str, Any], name: str) -> None:
    panel.set_title("trainers killed so far", loc="left")
    panel.set_ylabel("pods")
    panel.plot(curves["seconds"], curves["trainers_killed"], color=_KILLED, lw=2.0, label=name)
