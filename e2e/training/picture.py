"""Draws a run: batches and SIGTERM of each trainer, and total speed."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from e2e.demo.picture import settings
from e2e.training.traces import BatchTrace

_WIDTH_IN, _HEIGHT_IN, _DPI = 12.0, 7.0, 100
_TRAINED, _STOP, _SERVICES, _SPEED = "#1f6f8b", "#c44536", "#f3d9b1", "#3d5a3d"
_BIN_S = 1.0


def draw(path: Path, traces: Sequence[BatchTrace], burst: tuple[float, float], title: str) -> None:
    """Writes the picture.

    Args:
        path: A PNG file.
        traces: In the order of their lines, the first at the top.
        burst: When the services were created, and when they were deleted.
        title: One line.
    """
    settings()
    origin_s = min(trace.start_s for trace in traces)
    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), dpi=_DPI, layout="constrained")
    who, speed = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    figure.suptitle(title, fontsize=15, weight="bold")
    for panel in (who, speed):
        panel.axvspan(*(at_s - origin_s for at_s in burst), color=_SERVICES, lw=0, label="services")
        panel.grid(axis="x", alpha=0.3)
    _draw_traces(who, traces, origin_s)
    _speed(speed, traces, origin_s)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_traces(panel: Axes, traces: Sequence[BatchTrace], origin_s: float) -> None:
    for place, trace in enumerate(traces):
        times = [at_s - origin_s for at_s, _ in trace.batches]
        panel.plot(times, [place] * len(times), "|", color=_TRAINED, ms=11, mew=0.8)
        if trace.sigterm_s is not None:
            panel.plot([trace.sigterm_s - origin_s], [place], "v", color=_STOP, ms=9)
    panel.plot([], [], "|", color=_TRAINED, ms=11, label="a batch trained")
    panel.plot([], [], "v", color=_STOP, ms=9, label="SIGTERM")
    panel.set_yticks(range(len(traces)), [trace.name for trace in traces])
    panel.invert_yaxis()
    panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _speed(panel: Axes, traces: Sequence[BatchTrace], origin_s: float) -> None:
    events = [(at_s - origin_s, count) for trace in traces for at_s, count in trace.batches]
    bins = [0.0] * (int(max(at_s for at_s, _ in events) / _BIN_S) + 1)
    for at_s, count in events:
        bins[int(at_s / _BIN_S)] += count / _BIN_S
    panel.stairs(bins, [i * _BIN_S for i in range(len(bins) + 1)], color=_SPEED, lw=2)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("records a second")
    panel.set_xlabel("seconds")
