"""Output of commands: tables that fit the terminal, and ages. Pure, except for printing to a given console.

Texts from the cluster are written by others: control characters are replaced, and markup is not interpreted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runtime.printable import printable

_GAP = 3
"""Spaces between columns."""
_PIPE_COLUMNS = 10_000
"""Width for output to a pipe, so that lines for other programs are not wrapped."""
_MIN_COLUMNS = 30
_WRAPS_FROM = 16
"""Minimum width of a column that wraps, in characters."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_FEW = 10
"""An age of fewer units than this also shows the next smaller unit."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    optional: bool = False
    """Whether a narrow terminal omits the column; the rightmost optional column is omitted first."""
    wraps: bool = False
    """Whether the column's texts may be long and continue on the next line."""
    right: bool = False
    """Whether the column is right-aligned, for numbers."""


class _Console(Console):
    """A console that lets its caller handle a closed pipe, instead of exiting with 1."""

    def on_broken_pipe(self) -> None:
        """Raises the current error again; rich calls this while handling it."""
        raise BrokenPipeError


def console(file: TextIO, columns: int | None = None) -> Console:
    """Returns a console for `file`, as wide as the terminal or as `columns`; its width is unlimited for a pipe."""
    width = columns
    if width is None and not file.isatty():
        width = _PIPE_COLUMNS
    if width is not None:
        width = max(width, _MIN_COLUMNS)
    return _Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], width: int) -> Table:
    """Returns a table without lines, at most `width` wide if possible.

    Args:
        columns: The columns.
        rows: One cell per column; None is an empty cell.
        width: Width of the terminal, in characters.
    """
    cells = [["" if cell is None else printable(cell) for cell in row] for row in rows]
    widths = [
        max(cell_len(text) for text in (column.title, *(row[index] for row in cells)))
        for index, column in enumerate(columns)
    ]
    shown = _fitting(columns, widths, width)
    result = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, show_edge=False)
    for index in shown:
        column = columns[index]
        result.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            min_width=None if column.wraps else widths[index],
            overflow="fold",
            header_style="bold",
        )
    for row in cells:
        result.add_row(*(Text(row[index]) for index in shown))
    return result


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Returns the indexes of the columns that fit; optional columns are removed from the right."""
    shown = list(range(len(columns)))

    def used() -> int:
        least = (
            min(widths[index], _WRAPS_FROM) if columns[index].wraps else widths[index]
            for index in shown
        )
        return sum(least) + _GAP * len(shown)

    while used() > width:
        optional = [index for index in shown if columns[index].optional]
        if not optional:
            break
        shown.remove(optional[-1])
    return shown


def age(seconds: float) -> str:
    """Formats a duration as kubectl does: `42s`, `3m20s`, `17m`, `5h3m`, `12d`; a negative one counts as 0."""
    whole = max(0, int(seconds))
    for unit, letter, smaller, smaller_letter in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "m"),
        (_MINUTE, "m", 1, "s"),
    ):
        if whole >= unit:
            count, remainder = divmod(whole, unit)
            smaller_count = remainder // smaller if count < _FEW else 0
            return (
                f"{count}{letter}{smaller_count}{smaller_letter}"
                if smaller_count
                else f"{count}{letter}"
            )
    return f"{whole}s"


def short_seconds(seconds: float) -> str:
    """Formats a measured time: `0.42 s`, `3.1 s`, `42 s`."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < _FEW else f"{seconds:.0f} s"
