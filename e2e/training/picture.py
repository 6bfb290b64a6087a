"""Draws a run: loss, steps of each trainer, number of trainers, and total speed.

There is no panel for the loss where steps have none, nor for the numbers where nobody observed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.picture import page
from e2e.training.observer import Observation
from e2e.training.traces import TrainerTrace, TrainingStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_IN, _HEAD_IN = 12.0, 1.0
_LOSS, _STEP, _FIRST, _STOP, _SERVICES, _SPEED = (
    "#3b3b6d", "#1f6f8b", "#e09f3e", "#c44536", "#f3d9b1", "#3d5a3d",
)  # fmt: skip
_BIN_S = 1.0
_SMOOTH = 20
"""Number of steps in the moving average of the loss."""


@dataclass(frozen=True, slots=True)
class PictureData:
    """The data of the picture."""

    title: str
    traces: Sequence[TrainerTrace]
    steps: Sequence[TrainingStep]
    """Steps whose losses and records are shown, oldest first."""
    burst: tuple[float, float]
    """When the services were created, and when they were deleted."""
    looks: Sequence[Observation] = ()
    marks: Sequence[tuple[float, str]] = ()
    """Other events: time and text."""


def draw(path: Path, scene: PictureData) -> None:
    """Writes the picture, a PNG file."""
    origin_s = min(trace.start_s for trace in scene.traces)
    with_loss = any(step.loss for step in scene.steps)
    kinds = [
        *([(3, _loss)] if with_loss else []),
        (3, _draw_traces),
        *([(2, _counts)] if scene.looks else []),
        (3, _speed),
    ]
    heights = [height for height, _ in kinds]
    with page(path, scene.title, width_in=_WIDTH_IN, height_in=_HEAD_IN + sum(heights)) as figure:
        panels = figure.subplots(len(kinds), 1, sharex=True, height_ratios=heights)
        for panel, (_, draw_panel) in zip(panels, kinds, strict=True):
            _draw_events(panel, scene, origin_s)
            draw_panel(panel, scene, origin_s)
            panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        panels[-1].set_xlabel("seconds since the first trainer's start")


def _draw_events(panel: Axes, scene: PictureData, origin_s: float) -> None:
    """The time with services, and the other events."""
    span = [at_s - origin_s for at_s in scene.burst]
    panel.axvspan(*span, color=_SERVICES, lw=0, label="services need capacity")
    for at_s, _ in scene.marks:
        panel.axvline(at_s - origin_s, color=_STOP, ls=":", lw=1.5)
    panel.grid(axis="x", alpha=0.3)


def _loss(panel: Axes, scene: PictureData, origin_s: float) -> None:
    times = [step.at_s - origin_s for step in scene.steps]
    losses = [step.loss for step in scene.steps]
    smooth = [
        sum(losses[max(0, end - _SMOOTH) : end]) / len(losses[max(0, end - _SMOOTH) : end])
        for end in range(1, len(losses) + 1)
    ]
    panel.plot(times, losses, ".", color=_LOSS, ms=3, alpha=0.25, label="a step")
    panel.plot(times, smooth, color=_LOSS, lw=2, label=f"mean of {_SMOOTH} steps")
    panel.set_yscale("log")
    panel.set_ylabel("training loss")
    for at_s, text in scene.marks:
        panel.annotate(text, (at_s - origin_s, 1.0), xycoords=("data", "axes fraction"),
                       rotation=0, ha="left", va="top", color=_STOP, fontsize=10)  # fmt: skip


def _draw_traces(panel: Axes, scene: PictureData, origin_s: float) -> None:
    style = {"ls": "", "marker": "|", "ms": 11.0, "mew": 0.8}
    ranked = any(step.world_size for trace in scene.traces for step in trace.steps)
    for place, trace in enumerate(scene.traces):
        for first, colour in ((False, _STEP), (True, _FIRST)):
            times = [
                step.at_s - origin_s for step in trace.steps if (ranked and step.rank == 0) is first
            ]
            panel.plot(times, [place] * len(times), color=colour, **style)  # type: ignore[arg-type]
        if trace.sigterm_s is not None:
            panel.plot([trace.sigterm_s - origin_s], [place], "v", color=_STOP, ms=9)
    panel.plot([], [], color=_STEP, label="a step", **style)  # type: ignore[arg-type]
    if ranked:
        panel.plot([], [], color=_FIRST, label="as rank 0", **style)  # type: ignore[arg-type]
    panel.plot([], [], "v", color=_STOP, ms=9, label="SIGTERM")
    panel.set_yticks(range(len(scene.traces)), [trace.name for trace in scene.traces])
    panel.invert_yaxis()


def _counts(panel: Axes, scene: PictureData, origin_s: float) -> None:
    times = [look.at_s - origin_s for look in scene.looks]
    lines = (
        ("trainers' pods", [look.trainers for look in scene.looks], _STEP, "--"),
        ("trainers that train", [look.training for look in scene.looks], _STEP, "-"),
        ("services", [look.services for look in scene.looks], _STOP, "-"),
    )
    for name, counts, colour, style in lines:
        if any(counts):
            panel.step(times, counts, style, where="post", color=colour, lw=2, label=name)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("how many")


def _speed(panel: Axes, scene: PictureData, origin_s: float) -> None:
    events = [(step.at_s - origin_s, step.records) for step in scene.steps]
    bins = [0.0] * (int(max(at_s for at_s, _ in events) / _BIN_S) + 1)
    for at_s, count in events:
        bins[int(at_s / _BIN_S)] += count / _BIN_S
    edges = [place * _BIN_S for place in range(len(bins) + 1)]
    panel.stairs(bins, edges, color=_SPEED, lw=2, label="of all together")
    panel.set_ylim(bottom=0)
    panel.set_ylabel("records a second")
