"""How a run looks on a terminal: one line for the job, one for each process. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KEYS = "+ add  - remove  k kill -9  m kill the master  q quit"
_BAR = 20
_NAME, _STATE = 12, 22
_ASIDE = ("evaluation", "export")
"""Kinds of data sets that are no part of how far a job is."""


@dataclass(frozen=True)
class Row:
    """A process."""

    name: str
    state: str
    held: str
    last: str


@dataclass(frozen=True)
class Sums:
    """Of all data sets, from the master's status."""

    records: int | None = None
    """Of all epochs; None where a data set is endless or none is described."""
    done: int = 0
    dropped_tasks: int = 0
    in_vain: int = 0
    """Trained, but not acknowledged when the trainer was lost: trained again by others."""


def sums(status: Mapping[str, Any]) -> Sums:
    """Reads the master's status; what it does not hold counts as nothing."""
    told = status.get("datasets", {}).values()
    sets = [one for one in told if isinstance(one, dict) and one.get("kind") not in _ASIDE]
    sizes = [_records(one) for one in sets]
    known = [size for size in sizes if size is not None]
    return Sums(
        sum(known) if sizes and len(known) == len(sizes) else None,
        sum(int(one.get("done_records") or 0) for one in sets),
        sum(int(one.get("dropped_tasks") or 0) for one in sets),
        int(status.get("lost_records") or 0) + int(status.get("trained_again_records") or 0),
    )


def share(found: Sums) -> float:
    """Of all records that are done, 0 to 1."""
    return min(1.0, found.done / found.records) if found.records else 0.0


def held(status: Mapping[str, Any], trainer: str) -> str:
    """How far a trainer is, such as `512 records acknowledged, 48 not yet`; in a group its rank."""
    about = status.get("trainers", {}).get(trainer)
    if not isinstance(about, dict):
        return ""
    rank = about.get("rank")
    if isinstance(rank, int):
        return f"rank {rank}"
    done, waiting = (int(about.get(name) or 0) for name in ("records", "uncommitted_records"))
    return f"{done} records acknowledged, {waiting} not yet"


def together(status: Mapping[str, Any]) -> str:
    """Who trains together, such as `round 4 with 3 members`; "" where nobody does."""
    about = status.get("rendezvous")
    if not isinstance(about, dict) or not about.get("round"):
        return ""
    count = len(about.get("members") or ())
    forming = "" if about.get("formed") else ", forming"
    return f"round {about['round']} with {count} member{'' if count == 1 else 's'}{forming}"


def screen(
    job: str,
    took_s: float,
    found: Sums,
    rows: Sequence[Row],
    width: int,
    *,
    about: Sequence[str] = (),
) -> list[str]:
    """Lines, none longer than the terminal is wide; `about` is told below the job."""
    full = int(share(found) * _BAR)
    bar = f"[{'#' * full}{'.' * (_BAR - full)}] " if found.records else ""
    of = f" of {found.records}" if found.records else ""
    lines = [f"{job}  {took_s:.1f} s  {bar}{found.done}{of} records done   {KEYS}"]
    if about:
        lines.append("  ".join(about))
    for row in rows:
        about = "  ".join(part for part in (row.held, row.last) if part)
        lines.append(f"{row.name:<{_NAME}} {row.state:<{_STATE}} {about}")
    return [line[: max(1, width - 1)] for line in lines]


def _records(about: Mapping[str, Any]) -> int | None:
    size, epochs = about.get("records"), about.get("epochs")
    if isinstance(size, int) and isinstance(epochs, int) and epochs > 0:
        return size * epochs
    return None
