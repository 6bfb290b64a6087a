"""The output of the running demo: a small live picture, or plain lines in a log.

A view is ticked by the demo's own waiting loop; it has no thread and costs little CPU, since
the cluster it shows shares the same cores.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from e2e.measure.pods import Kind
from e2e.measure.record import Counts

LIVE_PERIOD_S = 0.25
PLAIN_PERIOD_S = 5.0
_WIDTH = 78
_BAR_WIDTH = 44


@dataclass(slots=True)
class Scene:
    """The data of the live view; the script keeps it up to date."""

    title: str
    doing: str = ""
    """The current step in words."""
    counts: Counts = field(default_factory=Counts)
    services_wanted: int = 0
    jobs: tuple[str, ...] = ()
    max_trainers: int = 0
    total_millis: int = 0
    last_reclaim: str = ""
    left_s: float | None = None
    """Seconds to the end, once known."""

    @property
    def cpu_percent(self) -> float:
        """CPU in use now."""
        return 100 * self.counts.cpu_millis / self.total_millis if self.total_millis else 0.0


class LiveView(Protocol):
    """A display of scenes."""

    def tick(self, scene: Scene, now_s: float) -> None:
        """Called often; shows the scene when it is time to."""

    def say(self, text: str) -> None:
        """One line that stays."""


@contextmanager
def view(console: Console) -> Iterator[LiveView]:
    """A live view on a terminal, plain lines elsewhere; the terminal is whole again after it."""
    if not console.is_terminal:
        yield LogView(console)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Screen(live)


class LogView:
    """A line every five seconds, and one for everything that happens once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown_s = float("-inf")

    def tick(self, scene: Scene, now_s: float) -> None:
        """See `View.tick`."""
        if now_s - self._shown_s >= PLAIN_PERIOD_S:
            self._shown_s = now_s
            self.say(line(scene))

    def say(self, text: str) -> None:
        """See `View.say`."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class Screen:
    """Redraws in place four times a second."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._shown_s = float("-inf")

    def tick(self, scene: Scene, now_s: float) -> None:
        """See `View.tick`."""
        if now_s - self._shown_s >= LIVE_PERIOD_S:
            self._shown_s = now_s
            self._live.update(screen(scene), refresh=True)

    def say(self, text: str) -> None:
        """See `View.say`."""
        self._live.console.print(text, highlight=False, markup=False)


def line(scene: Scene) -> str:
    """Returns the scene in one line."""
    counts = scene.counts
    parts = [scene.doing]
    if scene.services_wanted:
        waiting = counts.waiting(Kind.SERVICE)
        parts.append(
            f"services {counts.at_work(Kind.SERVICE)}/{scene.services_wanted}"
            + (f" ({waiting} pending)" if waiting else "")
        )
    if scene.jobs:
        parts.append("trainers " + " ".join(str(counts.trainers[job]) for job in scene.jobs))
    if counts.cpu_millis:
        parts.append(f"CPU {scene.cpu_percent:.1f} %")
    if scene.left_s is not None:
        parts.append(f"{_clock(scene.left_s)} left")
    return " | ".join(parts)


def screen(scene: Scene) -> RenderableType:
    """Returns the scene as a picture of at most 80 x 24, or a line more for every job above six."""
    services = [_services(scene), Text()] if scene.services_wanted else []
    return Group(_head(scene), Text(), *services, _trainers(scene), Text(), _cpu(scene))


def _head(scene: Scene) -> RenderableType:
    grid = Table.grid(expand=False)
    grid.add_column(width=_WIDTH - 12, no_wrap=True, overflow="ellipsis")
    grid.add_column(width=12, justify="right")
    remaining = "" if scene.left_s is None else f"{_clock(scene.left_s)} left"
    grid.add_row(Text(scene.title, style="bold"), Text(remaining, style="dim"))
    grid.add_row(Text(scene.doing, style="cyan"), "")
    return grid


def _services(scene: Scene) -> RenderableType:
    counts = scene.counts
    running, pending = counts.at_work(Kind.SERVICE), counts.waiting(Kind.SERVICE)
    grid = _rows()
    grid.add_row(
        "services",
        _bar(running, scene.services_wanted, "blue"),
        f"{running} of {scene.services_wanted}",
    )
    note = Text(f"{pending} pending" if pending else "none pending", style="red" if pending else "")
    grid.add_row("", note, "")
    if scene.last_reclaim:
        grid.add_row("", Text(scene.last_reclaim, style="green"), "")
    return grid


def _trainers(scene: Scene) -> RenderableType:
    grid = _rows()
    for job in scene.jobs:
        count = scene.counts.trainers[job]
        grid.add_row(job, _bar(count, scene.max_trainers, "magenta"), f"{count} trainers")
    total = sum(scene.counts.trainers[job] for job in scene.jobs)
    pending = scene.counts.waiting(Kind.TRAINER)
    grid.add_row("all jobs", Text(f"{total} trainers, {pending} pending", style="bold"), "")
    return grid


def _cpu(scene: Scene) -> RenderableType:
    grid = _rows()
    percent = scene.cpu_percent
    grid.add_row("CPU in use", _bar(round(percent), 100, "green"), f"{percent:.1f} %")
    return grid


def _rows() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=10)
    grid.add_column(width=_BAR_WIDTH)
    grid.add_column(width=18, justify="right")
    return grid


def _bar(value: int, total: int, colour: str) -> ProgressBar:
    return ProgressBar(
        total=max(total, 1),
        completed=min(value, total),
        width=_BAR_WIDTH,
        complete_style=colour,
        finished_style=colour,
    )


def _clock(seconds: float) -> str:
    minutes, rest_s = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest_s:02}"
