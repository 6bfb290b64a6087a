"""`top`: shows waiting services, jobs, bursts and the objective, live."""

import sys
import time

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cli import terminal
from cli.frame import Frame, Output, command
from cli.overview import Overview, OverviewReader
from cli.terminal import Column, age
from policy.reasons import Observation
from runtime.printable import printable

_FRAME_LINES = 6
"""Lines on the screen besides the rows of the table of jobs."""


@command("top", listing=True)
@click.option(
    "--once", is_flag=True, help="Print once and exit; the default if the output is not a terminal."
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(1.0, 3600.0),
    default=2.0,
    show_default=True,
    help="Seconds between updates.",
)
def top(frame: Frame, once: bool, every_s: float) -> None:
    """Show waiting services, jobs with their shares, and reclaims, live.

    SHARE is a job's dominant share: its largest share of any resource of the cluster. Press Ctrl-C to
    exit.
    """
    reader = OverviewReader(frame)
    overview = reader.read()
    if once or frame.flags.output is not Output.TABLE or not sys.stdout.isatty():
        frame.show(overview.to_json(), lambda console: console.print(render(overview, console)))
        return
    with Live(render(overview, frame.console), console=frame.console, screen=True) as live:
        while True:
            time.sleep(every_s)
            live.update(render(reader.read(), frame.console))


def render(overview: Overview, console: Console) -> RenderableType:
    """Renders an overview with at most as many lines as the terminal has."""
    height = console.height - _FRAME_LINES if console.is_terminal else len(overview.jobs)
    shown = overview.jobs[: max(1, height)]
    lines: list[RenderableType] = [
        Text(printable(line), overflow="fold") for line in _lines(overview)
    ]
    has_namespaces = overview.scope == "all namespaces"
    columns = [
        *([Column("NAMESPACE", wraps=True)] if has_namespaces else []),
        Column("NAME", wraps=True),
        Column("TRAINERS", right=True),
        Column("MIN", optional=True, right=True),
        Column("MAX", optional=True, right=True),
        Column("SHARE", right=True),
        Column("WHY"),
    ]
    rows = [
        [
            *([row["namespace"]] if has_namespaces else []),
            row["name"],
            row["trainers"],
            row["min"],
            row["max"],
            "" if row["share"] is None else f"{row['share']:.1%}",
            row["code"],
        ]
        for row in shown
    ]
    if rows:
        lines += [Text(""), terminal.table(columns, rows, console.width)]
    hidden = overview.job_count - len(shown)
    if hidden > 0:
        lines.append(Text(f"and {hidden} more job{'' if hidden == 1 else 's'}"))
    return Group(*lines)


def _lines(overview: Overview) -> list[str]:
    lines = [f"{overview.scope}: jobs: {overview.job_count}, trainers: {overview.trainers}"]
    if overview.waiting:
        lines.append(
            f"services waiting: {overview.waiting}, the oldest for {age(overview.oldest_s)}"
        )
    else:
        lines.append("services waiting: none")
    burst = overview.burst
    if burst is not None:
        when = age(overview.now_s - burst.at_s)
        state = "ongoing" if burst.code == Observation.RECLAIMING else f"ended {when} ago"
        lines.append(f"newest reclaim ({state}): {burst.text}")
    if overview.objective is not None:
        burn = overview.objective.figures.get("burn", {})
        rates = ", ".join(f"{rate:g} in {span}" for span, rate in burn.items())
        lines.append(f"reclaim objective: {overview.objective.text}; burn rate {rates}")
    return lines
