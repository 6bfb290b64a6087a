"""Draws a run: services, trainers and CPU in use, stacked over one time axis.

The same three curves as figure 2 of the first elastic-training reports on Kubernetes, so
that runs can be laid beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.picture import page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_IN, _HEIGHT_IN = 12.0, 10.0
_LEGEND_ROWS = 14
_GREY = "#9a9a9a"
_SERVICE, _WANTED, _CPU = "#1f6f8b", "#c44536", "#3d5a3d"
_TITLE = "Elastic training in what {most} services leave free ({nodes} nodes, {cpu:,} CPU)"


def draw(path: Path, runs: dict[str, dict[str, Any]], *, nodes: int, cpu: int) -> None:
    """Writes the picture; the first of `runs` in colour, a second one in grey beside it.

    Args:
        path: A PNG file.
        runs: Name -> sampled curves (`e2e.measure.report.sampled`); one or two.
        nodes: Number of nodes, for the title.
        cpu: Their CPU in all, for the title.
    """
    (name, curves), *others = runs.items()
    most = max(curves["services_wanted"], default=0)
    title = _TITLE.format(most=most, nodes=nodes, cpu=cpu)
    with page(path, title, width_in=_WIDTH_IN, height_in=_HEIGHT_IN) as figure:
        panels = figure.subplots(3, 1, sharex=True, height_ratios=[3, 4, 3])
        _services(panels[0], curves)
        trainers_panel(panels[1], curves)
        cpu_panel(panels[2], curves, name)
        for other, theirs in others:
            _other_run(panels, other, theirs)
        tidy(panels, curves, stacked=panels[1])


def tidy(panels: Sequence[Axes], curves: dict[str, Any], *, stacked: Axes) -> None:
    """Grids, legends and the time axis of panels that lie upon each other.

    Args:
        panels: From top to bottom.
        curves: What they show.
        stacked: The one whose legend is to list bands as they lie upon each other.
    """
    for panel in panels:
        panel.grid(visible=True, color="#e4e4e4", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.set_ylim(bottom=0)
        handles, labels = panel.get_legend_handles_labels()
        if panel is stacked:
            handles, labels = handles[::-1], labels[::-1]
        panel.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(1.005, 1.0),
            frameon=False,
            fontsize=11,
            ncols=1 + len(labels) // _LEGEND_ROWS,
        )
    panels[-1].set_xlabel("seconds since the first job was submitted")
    panels[-1].set_xlim(min(curves["seconds"], default=0), max(curves["seconds"], default=1))


def _services(panel: Axes, curves: dict[str, Any]) -> None:
    seconds = curves["seconds"]
    panel.set_title("services (3 CPU each)", loc="left")
    panel.set_ylabel("pods")
    panel.plot(seconds, curves["services_wanted"], color=_WANTED, lw=1.6, ls="--", label="wanted")
    panel.plot(seconds, curves["services_running"], color=_SERVICE, lw=2.2, label="running")


def trainers_panel(panel: Axes, curves: dict[str, Any]) -> None:
    """A band for each job."""
    import matplotlib as mpl  # noqa: PLC0415 - as in e2e.picture

    jobs: dict[str, list[int]] = curves["trainers_running"]
    panel.set_title("trainers (5 CPU each), one band for each job", loc="left")
    panel.set_ylabel("pods running")
    colours = mpl.colormaps["viridis"].resampled(len(jobs) + 1)
    panel.stackplot(
        curves["seconds"],
        list(jobs.values()),
        labels=list(jobs),
        colors=[colours(index) for index in range(len(jobs))],
        edgecolor="white",
        linewidth=0.4,
    )
    totals = [sum(counts) for counts in zip(*jobs.values(), strict=True)]
    panel.plot(curves["seconds"], totals, color="black", lw=1.2, label="all jobs")


def cpu_panel(panel: Axes, curves: dict[str, Any], name: str) -> None:
    """CPU in use, in percent."""
    percent = curves["cpu_in_use_percent"]
    panel.set_title("CPU in use (requests of running pods)", loc="left")
    panel.set_ylabel("% of all CPU")
    panel.fill_between(curves["seconds"], percent, color=_CPU, alpha=0.18, linewidth=0)
    panel.plot(curves["seconds"], percent, color=_CPU, lw=1.8, label=name)
    panel.axhline(100, color="black", lw=0.8)


def _other_run(panels: Any, name: str, curves: dict[str, Any]) -> None:
    """A run to compare with: grey lines, behind the coloured lines and above the bands."""
    seconds = curves["seconds"]
    jobs = curves["trainers_running"].values()
    totals = [sum(counts) for counts in zip(*jobs, strict=True)]
    behind, above = 1.5, 2.5
    lines = (
        (curves["services_running"], behind),
        (totals, above),
        (curves["cpu_in_use_percent"], behind),
    )
    for panel, (line, zorder) in zip(panels, lines, strict=True):
        panel.plot(seconds, line, color=_GREY, lw=2.0, zorder=zorder, label=name)
