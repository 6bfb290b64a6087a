"""Formats the screen of a run: one line for the job, one for each process. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KEYS = "+ add  - remove  k kill -9  m kill the master  q quit"
_BAR = 20
_NAME, _STATE = 12, 22
_NOT_PROGRESS = ("evaluation", "export")
"""Kinds of data sets that do not count towards the progress of the job."""


@dataclass(frozen=True)
class Row:
    """The line of a process on the screen."""

    name: str
    state: str
    progress: str
    last_line: str


@dataclass(frozen=True)
class Totals:
    """Sums over all data sets of the master's status."""

    records: int | None = None
    """Records of all epochs; None if a data set is endless or none is known."""
    done: int = 0
    dropped_tasks: int = 0
    lost: int = 0
    """Records trained more than once: their trainer was lost before it acknowledged them, or the model
    was lost afterwards."""


def sum_datasets(status: Mapping[str, Any]) -> Totals:
    """Sums up the master's status; missing fields count as 0."""
    datasets = status.get("datasets", {}).values()
    sets = [
        dataset
        for dataset in datasets
        if isinstance(dataset, dict) and dataset.get("kind") not in _NOT_PROGRESS
    ]
    sizes = [_records(dataset) for dataset in sets]
    bounded_sizes = [size for size in sizes if size is not None]
    return Totals(
        sum(bounded_sizes) if sizes and len(bounded_sizes) == len(sizes) else None,
        sum(int(dataset.get("done_records") or 0) for dataset in sets),
        sum(int(dataset.get("dropped_tasks") or 0) for dataset in sets),
        int(status.get("lost_records") or 0)
        + int(status.get("trained_again_records") or 0)
        + sum(int(dataset.get("redone_records") or 0) for dataset in sets),
    )


def done_share(totals: Totals) -> float:
    """Returns the share of all records that are done, 0 to 1."""
    return min(1.0, totals.done / totals.records) if totals.records else 0.0


def progress_text(status: Mapping[str, Any], trainer: str) -> str:
    """Formats a trainer's progress: its rank in a group, or `512 records acknowledged, 48 not yet`."""
    trainer_status = status.get("trainers", {}).get(trainer)
    if not isinstance(trainer_status, dict):
        return ""
    rank = trainer_status.get("rank")
    if isinstance(rank, int):
        return f"rank {rank}"
    done = int(trainer_status.get("records") or 0)
    waiting = int(trainer_status.get("uncommitted_records") or 0)
    return f"{done} records acknowledged, {waiting} not yet"


def round_text(status: Mapping[str, Any]) -> str:
    """Formats the current round, such as `round 4 with 3 members`; returns "" without one."""
    round_status = status.get("rendezvous")
    if not isinstance(round_status, dict) or not round_status.get("round"):
        return ""
    count = len(round_status.get("members") or ())
    forming = "" if round_status.get("formed") else ", forming"
    return f"round {round_status['round']} with {count} member{'' if count == 1 else 's'}{forming}"


def outage_text(status: Mapping[str, Any]) -> str:
    """Formats the data set that is currently unreadable; returns "" if all are readable."""
    for name, dataset in status.get("datasets", {}).items():
        if isinstance(dataset, dict) and dataset.get("outage"):
            return f"cannot read {name}, retrying: {dataset['outage']}"
    return ""


def screen(
    job: str,
    took_s: float,
    totals: Totals,
    rows: Sequence[Row],
    width: int,
    *,
    notes: Sequence[str] = (),
) -> list[str]:
    """Returns the lines of the screen, cut to its width.

    Args:
        job: Name of the job.
        took_s: Seconds since the start of the run.
        totals: Sums over the data sets.
        rows: One row for each process.
        width: Columns of the terminal.
        notes: Texts for the second line.

    Returns:
        The lines. The keys are in the first line if they fit, otherwise in a last line.
    """
    full = int(done_share(totals) * _BAR)
    bar = f"[{'#' * full}{'.' * (_BAR - full)}] " if totals.records else ""
    total_text = f" of {totals.records}" if totals.records else ""
    lines = [f"{job}  {took_s:.1f} s  {bar}{totals.done}{total_text} records done"]
    keys_fit = len(f"{lines[0]}   {KEYS}") < width
    if keys_fit:
        lines[0] += f"   {KEYS}"
    if notes:
        lines.append("  ".join(notes))
    for row in rows:
        details = "  ".join(part for part in (row.progress, row.last_line) if part)
        lines.append(f"{row.name:<{_NAME}} {row.state:<{_STATE}} {details}")
    if not keys_fit:
        lines.append(KEYS)
    return [line[: max(1, width - 1)] for line in lines]


def _records(dataset: Mapping[str, Any]) -> int | None:
    size, epochs = dataset.get("records"), dataset.get("epochs")
    if isinstance(size, int) and isinstance(epochs, int) and epochs > 0:
        return size * epochs
    return None
