"""Plots two loss curves, their difference, and the members of the second job."""

from pathlib import Path

from e2e.picture import page
from tests.sdk.sync.curves import Curve

_WIDTH_IN, _HEIGHT_IN = 12.0, 8.0
_FIXED, _ELASTIC, _MEMBERS, _DIFFERENCE = "#9a9a9a", "#1f6f8b", "#3d5a3d", "#c44536"
_LEAST = 1e-9
"""The value plotted for a difference of 0."""


def curves(path: Path, name: str, fixed: Curve, elastic: Curve, *, batch: int) -> None:
    """Writes the plot.

    Args:
        path: A PNG file.
        name: The name of the framework.
        fixed: The curve with fixed members.
        elastic: The curve with changing members.
        batch: Records per step.
    """
    title = f"Members change, the loss does not: digits with {name}, {batch} records a step"
    steps = range(1, len(fixed.losses) + 1)
    pairs = zip(fixed.losses, elastic.losses, strict=True)
    differences = [max(_LEAST, abs(a - b) / max(abs(a), abs(b))) for a, b in pairs]
    with page(path, title, width_in=_WIDTH_IN, height_in=_HEIGHT_IN) as figure:
        loss, difference, members = figure.subplots(3, 1, sharex=True, height_ratios=[4, 2, 2])
        loss.plot(steps, fixed.losses, color=_FIXED, lw=4, label="fixed members")
        loss.plot(steps, elastic.losses, color=_ELASTIC, lw=1, label="changing members")
        loss.set_yscale("log")
        loss.set_ylabel("loss of the step")
        loss.legend(frameon=False)
        difference.plot(steps, differences, ".", color=_DIFFERENCE, ms=4)
        difference.set_yscale("log")
        difference.set_ylabel("relative difference")
        members.step(steps, elastic.worlds, color=_MEMBERS, lw=2, where="mid")
        members.set_ylim(0, max(elastic.worlds) + 1)
        members.set_ylabel("members")
        members.set_xlabel("step")
        for panel in (loss, difference, members):
            panel.grid(axis="y", alpha=0.3)
