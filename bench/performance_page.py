"""`python -m bench.performance_page`: writes docs/performance.md from the figures in bench/results."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench import written_page
from e2e.measure.criteria import Criterion

AREAS = (
    "demo",
    "queues",
    "first",
    "plan",
    "scale",
    "clusters",
    "strangers",
    "installation",
    "data",
    "training",
    "torch",
    "page",
    "code",
)
"""Files in bench/results, in the order of the page."""
RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
MAX_BYTES = 8_192
"""Keeps the page short enough to be read as a whole."""
_INTRODUCTION = """# Performance

`make performance-page` writes this page from `bench/results`; do not edit it. It shows every bar that is missed (bold), and the
main figures. All figures, with notes on load, are in `bench/results`; [methods.md](methods.md) says how they are measured.
All were measured on 2 cores; (a), (b) and (c) are the ways of [install.md](install.md#2-kube-scheduler).
"""
_HEAD = "| Claim | Value | Bar | When | Commit | Command |\n|---|---|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class Figure:
    """The newest measurement of one claim."""

    area: str
    criterion: Criterion
    """Claim, value, unit and bar."""
    when: str
    """Date, ISO 8601."""
    commit: str
    """The commit that recorded the figure."""
    command: str
    """Measures it again."""
    note: str
    """Load of the machine, and other runs."""
    headline: bool
    """Whether the page shows the figure although its bar holds."""

    @property
    def missed(self) -> bool:
        """Whether the value misses its bar."""
        return not self.criterion.holds


def figure(row: dict[str, Any]) -> Figure:
    """Returns the figure of a row in bench/results.

    Raises:
        ValueError: `ok` contradicts value and bar.
    """
    criterion = Criterion(row["claim"], row["value"], row["unit"], row["bar"], row["at_least"])
    if row["ok"] != (None if criterion.limit is None else criterion.holds):
        raise ValueError(f"{row['claim']}: ok is {row['ok']}, which value and bar contradict")
    return Figure(
        row["area"],
        criterion,
        row["when"],
        row["commit"],
        row["command"],
        row["note"],
        row["headline"],
    )


def figures(area: str) -> list[Figure]:
    """Returns the figures of one file in bench/results."""
    return [figure(row) for row in orjson.loads((RESULTS / f"{area}.json").read_bytes())]


def page() -> str:
    """Returns the text of the page: a table for each area, missed bars first."""
    return "\n".join([_INTRODUCTION, *(table(figures(area)) for area in AREAS)])


def table(measured: Sequence[Figure]) -> str:
    """Returns the table of one area."""
    bars = [figure for figure in measured if figure.criterion.limit is not None]
    shown = [figure for figure in measured if figure.missed or figure.headline]
    shown.sort(key=lambda figure: not figure.missed)
    held = f"\n{_held(bars)}\n" if bars else ""
    return f"## {measured[0].area}\n{held}\n{_HEAD}{''.join(map(_row, shown))}"


def _held(bars: Iterable[Figure]) -> str:
    missed = [bar.missed for bar in bars]
    return f"{missed.count(False)} of {len(missed)} bars hold."


def _row(figure: Figure) -> str:
    criterion = figure.criterion
    value = amount(criterion.value, criterion.unit)
    sign = "≥" if criterion.at_least else "≤"
    cells = (
        criterion.name,
        f"**{value}**" if figure.missed else value,
        "-" if criterion.limit is None else f"{sign} {amount(criterion.limit, '')}",
        figure.when,
        figure.commit,
        f"`{figure.command}`",
    )
    return f"| {' | '.join(cells)} |\n"


def amount(value: float | None, unit: str) -> str:
    """Returns a value with its unit, as people write it."""
    if value is None:
        return "never"
    return f"{value:,g} {unit}".rstrip()


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page.

    Returns:
        0.
    """
    return written_page.write("bench.performance_page", __doc__, PAGE, page, argv)


if __name__ == "__main__":
    sys.exit(main())
