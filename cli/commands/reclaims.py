"""`reclaims`: lists bursts of services: which waited, whose trainers were evicted, how long it took."""

from collections.abc import Mapping

import click
from rich.console import Console

from cli import records, terminal
from cli.frame import Frame, command
from cli.terminal import Column, age
from policy.reasons import Observation
from policy.records import CLUSTER, Record, burst_to_json, newest_of_bursts

_STAGES = ("decide", "free", "start", "total")


@command("reclaims", listing=True)
@click.option(
    "--last",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Number of newest bursts to list.",
)
def reclaims(frame: Frame, last: int) -> None:
    """List bursts of services that took capacity from training.

    The newest burst is last. DECIDE, FREE, START and TOTAL are the longest times in a burst, in seconds:
    until trainers were chosen, until the service had its node, until its containers ran, and the sum.
    LOST is training that had to be repeated.
    """
    namespace = CLUSTER if frame.namespace is None else frame.namespace
    log_records = records.of_namespace(frame, namespace)
    bursts = newest_of_bursts(log_records)[-last:]
    rows = [burst_to_json(record) for record in bursts]
    frame.show(rows, lambda console: print_bursts(frame, console, bursts))


def print_bursts(frame: Frame, console: Console, bursts: list[Record]) -> None:
    """Prints a table of bursts."""
    if not bursts:
        frame.say("The records show no service that took capacity from training.")
        return
    columns = [
        Column("AGE", right=True),
        Column("SERVICES", wraps=True),
        Column("TRAINERS", wraps=True),
        *(Column(stage.upper(), optional=stage != "total", right=True) for stage in _STAGES),
        Column("LOST", right=True),
    ]
    rows: list[list[object]] = [
        [
            age(frame.now_s - record.since_s),
            _groups(record.figures.get("services")),
            _groups(record.figures.get("trainers")) or "none",
            *(_longest(record, stage) for stage in _STAGES),
            terminal.short_seconds(float(record.figures.get("lostSeconds") or 0.0)),
        ]
        for record in bursts
    ]
    console.print(terminal.table(columns, rows, console.width))


def _groups(groups: object) -> str:
    if not isinstance(groups, Mapping):
        return ""
    return ", ".join(f"{group.get('count', 0)} {name}" for name, group in groups.items())


def _longest(record: Record, stage: str) -> str:
    seconds = record.figures.get("stages", {}).get(stage, {}).get("max")
    if seconds is None:
        return "" if record.code == Observation.RECLAIMED else "..."
    return f"{seconds:.1f}"
