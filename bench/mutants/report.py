"""The report of a run: a table, the diffs of survivors, and JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table

from bench.mutants.run import Outcome
from bench.mutants.verdicts import MIN_RATE, Verdict, VerdictCounts

_SHOWN = (Verdict.SURVIVED, Verdict.NOT_COVERED, Verdict.BROKEN, Verdict.EQUIVALENT)
_COLUMNS = ("mutants", "tried", "killed", "survived", "timeout", "no test", "broken", "equal")
"""Short, so that they fit a terminal of 80 columns."""


def total(outcomes: Mapping[str, Outcome]) -> VerdictCounts:
    """The counts over all rooms."""
    return VerdictCounts.of(
        Verdict(mutant["verdict"]) for outcome in outcomes.values() for mutant in outcome.tried
    )


def table(outcomes: Mapping[str, Outcome], seed: int) -> Table:
    """A table with a row per room."""
    shown = Table(padding=(0, 0), title=f"mutants, seed {seed}", title_justify="left")
    shown.add_column("room")
    for column in (*_COLUMNS, "rate"):
        shown.add_column(column, justify="right", no_wrap=True)
    for name, outcome in outcomes.items():
        shown.add_row(name, f"{outcome.mutants}", *_cells(outcome.count))
    there_are = sum(outcome.mutants for outcome in outcomes.values())
    shown.add_section()
    shown.add_row("all", f"{there_are}", *_cells(total(outcomes)))
    return shown


def survivors(outcomes: Mapping[str, Outcome]) -> str:
    """Place and diff of the mutants that the tests did not detect."""
    parts = [
        _described(name, mutant)
        for name, outcome in outcomes.items()
        for mutant in outcome.tried
        if mutant["verdict"] in _SHOWN
    ]
    return "\n".join(parts)


def write(path: Path, outcomes: Mapping[str, Outcome], facts: Mapping[str, Any]) -> None:
    """Writes the JSON report: facts of the run, counts of the rooms, and all tried mutants."""
    rooms = {
        name: {"mutants": outcome.mutants} | _figures(outcome.count)
        for name, outcome in outcomes.items()
    }
    mutants = [
        {"room": name} | mutant for name, outcome in outcomes.items() for mutant in outcome.tried
    ]
    whole = {**facts, "all": _figures(total(outcomes)), "rooms": rooms, "mutants": mutants}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2))


def _cells(count: VerdictCounts) -> list[str]:
    figures = _figures(count)
    style = "" if count.rate >= MIN_RATE else "[yellow]"
    return [
        *(f"{value}" for name, value in figures.items() if name != "rate"),
        style + count.rate_text,
    ]


def _figures(count: VerdictCounts) -> dict[str, Any]:
    return asdict(count) | {"rate": round(count.rate, 4)}


def _described(room: str, mutant: Mapping[str, Any]) -> str:
    head = f"{room}: {mutant['file']}:{mutant['line']} {mutant['function']}: {mutant['verdict']}"
    reason = f" ({mutant['reason']})" if "reason" in mutant else ""
    return f"{head}{reason}\n{mutant['diff']}"
