"""Draws a run: the loss, who trained when, how many they were, and how fast they were together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from e2e.demo.picture import settings
from e2e.together.lives import Life, Step
from e2e.together.lookout import Look

_WIDTH_IN, _HEIGHT_IN, _DPI = 12.0, 10.0, 100
_LOSS, _STEP, _FIRST, _STOP, _SERVICES, _SPEED = (
    "#3b3b6d", "#1f6f8b", "#e09f3e", "#c44536", "#f3d9b1", "#3d5a3d",
)  # fmt: skip
_BIN_S = 1.0
_SMOOTH = 20
"""Steps of which the loss is the mean."""


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is drawn."""

    title: str
    lives: Sequence[Life]
    steps: Sequence[Step]
    """Whose losses and records are shown, the oldest first."""
    looks: Sequence[Look]
    burst: tuple[float, float]
    """When services wanted the capacity, and when they gave it back."""
    marks: Sequence[tuple[float, str]] = ()
    """What else happened, and when."""


def draw(path: Path, scene: Scene) -> None:
    """Writes the picture, a PNG file."""
    settings()
    origin_s = min(life.start_s for life in scene.lives)
    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), dpi=_DPI, layout="constrained")
    panels = figure.subplots(4, 1, sharex=True, height_ratios=[3, 3, 2, 3])
    figure.suptitle(scene.title, fontsize=15, weight="bold")
    for panel in panels:
        span = [at_s - origin_s for at_s in scene.burst]
        panel.axvspan(*span, color=_SERVICES, lw=0, label="services want room")
        for at_s, _ in scene.marks:
            panel.axvline(at_s - origin_s, color=_STOP, ls=":", lw=1.5)
        panel.grid(axis="x", alpha=0.3)
    _loss(panels[0], scene, origin_s)
    _lives(panels[1], scene, origin_s)
    _counts(panels[2], scene, origin_s)
    _speed(panels[3], scene, origin_s)
    for panel in panels:
        panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    panels[-1].set_xlabel("seconds since the first trainer's start")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _loss(panel: Axes, scene: Scene, origin_s: float) -> None:
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


def _lives(panel: Axes, scene: Scene, origin_s: float) -> None:
    style = {"ls": "", "marker": "|", "ms": 11.0, "mew": 0.8}
    ranked = any(step.world for life in scene.lives for step in life.steps)
    for place, life in enumerate(scene.lives):
        for first, colour in ((False, _STEP), (True, _FIRST)):
            times = [
                step.at_s - origin_s for step in life.steps if (ranked and step.rank == 0) is first
            ]
            panel.plot(times, [place] * len(times), color=colour, **style)  # type: ignore[arg-type]
        if life.sigterm_s is not None:
            panel.plot([life.sigterm_s - origin_s], [place], "v", color=_STOP, ms=9)
    panel.plot([], [], color=_STEP, label="a step", **style)  # type: ignore[arg-type]
    if ranked:
        panel.plot([], [], color=_FIRST, label="as rank 0", **style)  # type: ignore[arg-type]
    panel.plot([], [], "v", color=_STOP, ms=9, label="SIGTERM")
    panel.set_yticks(range(len(scene.lives)), [life.name for life in scene.lives])
    panel.invert_yaxis()


def _counts(panel: Axes, scene: Scene, origin_s: float) -> None:
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


def _speed(panel: Axes, scene: Scene, origin_s: float) -> None:
    events = [(step.at_s - origin_s, step.records) for step in scene.steps]
    bins = [0.0] * (int(max(at_s for at_s, _ in events) / _BIN_S) + 1)
    for at_s, count in events:
        bins[int(at_s / _BIN_S)] += count / _BIN_S
    edges = [place * _BIN_S for place in range(len(bins) + 1)]
    panel.stairs(bins, edges, color=_SPEED, lw=2, label="of all together")
    panel.set_ylim(bottom=0)
    panel.set_ylabel("records a second")
