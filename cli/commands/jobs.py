"""`jobs`: lists the elastic jobs with their trainers, and why they have no more."""

from typing import Any

from rich.console import Console

from cli import records, terminal
from cli.frame import Frame, command
from cli.terminal import Column
from kube import decode, request
from kube.story import state
from policy.cluster.snapshot import Job
from policy.records import Record, newest_of_jobs


@command("jobs", listing=True)
def jobs(frame: Frame) -> None:
    """List elastic jobs with their trainers, and why they have no more.

    WHY is a code of docs/reasons.md. `describe` and `why` tell more about one job.
    """
    objects = frame.all(request.JOBS, frame.namespace)
    elastic = [job for obj in objects if (job := decode.job(obj)) is not None]
    newest = newest_of_jobs(records.current(frame, frame.namespace))
    elastic.sort(key=lambda job: job.key)
    rows = [_row(frame, job, newest.get(job.key)) for job in elastic]
    frame.show(rows, lambda console: _print(frame, console, rows))


def _row(frame: Frame, job: Job, record: Record | None) -> dict[str, Any]:
    code, text = state(job, record)
    target = record.figures.get("target", job.status.active) if record else job.status.active
    return {
        "namespace": job.namespace,
        "name": job.name,
        "trainers": job.status.active,
        "target": job.status.active if job.finished else target,
        "min": job.min_trainers,
        "max": job.max_trainers,
        "queue": job.queue,
        "code": code,
        "text": text,
        "created": job.created_s,
        "ageSeconds": max(0.0, round(frame.now_s - job.created_s, 1)),
    }


def _print(frame: Frame, console: Console, rows: list[dict[str, Any]]) -> None:
    if not rows:
        where = f"the namespace {frame.namespace}" if frame.namespace else "this cluster"
        frame.say(f"There are no elastic jobs in {where}.")
        return
    columns = [
        Column("NAME", wraps=True),
        Column("TRAINERS", right=True),
        Column("MIN", optional=True, right=True),
        Column("MAX", right=True),
        Column("QUEUE", optional=True),
        Column("AGE", optional=True, right=True),
        Column("WHY"),
    ]
    cells: list[list[object]] = [
        [
            row["name"],
            row["trainers"],
            row["min"],
            row["max"],
            row["queue"],
            terminal.age(row["ageSeconds"]),
            row["code"],
        ]
        for row in rows
    ]
    if frame.namespace is None:
        columns.insert(0, Column("NAMESPACE"))
        cells = [[row["namespace"], *line] for row, line in zip(rows, cells, strict=True)]
    console.print(terminal.table(columns, cells, console.width))
