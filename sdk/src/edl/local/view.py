"""Formats a run for a terminal: one line for the job, one for each process. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KEYS = "+ add  - remove  k kill -9  m kill the master  q quit"
_BAR = 20
_NAME, _STATE = 12, 22
_ASIDE = ("evaluation", "export")
"""Kinds of data sets that do not count as progress of the job."""


@dataclass(frozen=True)
class Row:
    """The line of a process."""

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
    in_vain: int = 0
    """Records that were trained again, because their trainer was lost before acknowledging them, or
    the model afterwards."""


def sum_datasets(status: Mapping[str, Any]) -> Totals:
    """Sums up the master's status; missing fields count as 0."""
    datasets = status.get("datasets", {}).values()
    sets = [
        dataset
        for dataset in datasets
        if isinstance(dataset, dict) and dataset.get("kind") not in _ASIDE
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
    about = status.get("trainers", {}).get(trainer)
    if not isinstance(about, dict):
        return ""
    rank = about.get("rank")
    if isinstance(rank, int):
        return f"rank {rank}"
    done, waiting = (int(about.get(name) or 0) for name in ("records", "uncommitted_records"))
    return f"{done} records acknowledged, {waiting} not yet"


def round_text(status: Mapping[str, Any]) -> str:
    """Formats the current round, such as `round 4 with 3 members`; "" without one."""
    about = status.get("rendezvous")
    if not isinstance(about, dict) or not about.get("round"):
        return ""
    count = len(about.get("members") or ())
    forming = "" if about.get("formed") else ", forming"
    return f"round {about['round']} with {count} member{'' if count == 1 else 's'}{forming}"


def outage_text(status: Mapping[str, Any]) -> str:
    """Formats the data set that cannot be read at the moment; "" where all can."""
    for name, about in status.get("datasets", {}).items():
        if isinstance(about, dict) and about.get("outage"):
            return f"{name} cannot be read, waiting: {about['outage']}"
    return ""


def screen(
    job: str,
    took_s: float,
    totals: Totals,
    rows: Sequence[Row],
    width: int,
    *,
    about: Sequence[str] = (),
) -> list[str]:
    """Returns lines cut to the width of the terminal; `about` is shown below the job.

    The keys have a line of their own, the last one, where they do not fit beside the job.
    """
    full = int(done_share(totals) * _BAR)
    bar = f"[{'#' * full}{'.' * (_BAR - full)}] " if totals.records else ""
    total_text = f" of {totals.records}" if totals.records else ""
    lines = [f"{job}  {took_s:.1f} s  {bar}{totals.done}{total_text} records done"]
    keys_fit = len(f"{lines[0]}   {KEYS}") < width
    if keys_fit:
        lines[0] += f"   {KEYS}"
    if about:
        lines.append("  ".join(about))
    for row in rows:
        about = "  ".join(part for part in (row.progress, row.last_line) if part)
        lines.append(f"{row.name:<{_NAME}} {row.state:<{_STATE}} {about}")
    if not keys_fit:
        lines.append(KEYS)
    return [line[: max(1, width - 1)] for line in lines]


def _records(about: Mapping[str, Any]) -> int | None:
    size, epochs = about.get("records"), about.get("epochs")
    if isinstance(size, int) and isinstance(epochs, int) and epochs > 0:
        return size * epochs
    return None
