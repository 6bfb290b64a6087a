"""The report of a run: a table for the terminal, and a file with every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.gpu.cell import replace_json
from e2e.gpu.player import Outcome
from e2e.measure.processes import commit

_UNKNOWN = "unknown"
"""What `e2e.measure.processes.commit` returns without the history."""
_STATE = 8
"""Width of the longest state."""


def row(outcome: Outcome, name_width: int, width: int) -> str:
    """Returns a line of the table.

    Args:
        outcome: Of a cell.
        name_width: Characters for the name.
        width: Characters of the terminal.
    """
    shown = sorted(outcome.figures.items(), key=lambda item: isinstance(item[1], str))
    figures = "  ".join(f"{name} {text(value)}" for name, value in shown)
    what = outcome.problem.splitlines()[0] if outcome.problem else figures
    seconds = f"{outcome.seconds:6.1f}" if outcome.seconds else " " * 6
    line = f"{outcome.cell:{name_width}}  {outcome.state:{_STATE}}  {seconds}  {what}"
    return line if len(line) <= width else line[: width - 1] + "…"


def text(value: object) -> str:
    """Returns a figure with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(path: Path, about: Mapping[str, object], outcomes: Sequence[Outcome]) -> None:
    """Writes the file.

    Args:
        path: Path of the file.
        about: The card, the software beside it and the commit.
        outcomes: Results of the cells that have ended.
    """
    content = {**about, "cells": [outcome.as_json() for outcome in outcomes]}
    replace_json(path, content)


def commit_of(root: Path, carried: Path) -> str:
    """Returns the commit of a tree, with "+" if files differ from it.

    Args:
        root: Of the repository; it may have come without its history.
        carried: A file that says it then; see `e2e.gpu.wheels`.
    """
    measured = commit(root)
    return (
        carried.read_text(encoding="utf-8").strip()
        if measured == _UNKNOWN and carried.exists()
        else measured
    )
