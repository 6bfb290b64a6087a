"""The input of a cell: the device, a folder, and a place for its figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Figure = float | int | str | bool | None
FIGURES = "figures.json"


class Run:
    """One run of a cell. Figures are written at once, so that a cell that hangs keeps its figures."""

    def __init__(self, device: str, folder: Path) -> None:
        """Measures nothing yet.

        Args:
            device: Of torch: "cuda", or "standin" where CI plays the cell without a card.
            folder: Empty, for this cell alone.
        """
        self.device, self.folder = device, folder
        self.figures: dict[str, Figure] = {}

    def record(self, **figures: Figure) -> None:
        """Adds figures; names end with their unit, such as `step_ms`."""
        self.figures |= figures
        replace_json(self.folder / FIGURES, self.figures)

    def check(self, holds: Any, what: str) -> None:
        """Fails the cell unless something holds.

        Args:
            holds: Whether it does.
            what: The failure in one line, with the numbers.

        Raises:
            CellError: It does not.
        """
        if not holds:
            raise CellError(what)


def replace_json(path: Path, content: object) -> None:
    """Writes a file atomically, so that neither a reader nor a kill leaves half of it."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    temporary.rename(path)


class CellError(Exception):
    """A check of a cell failed; the message is one line for the table."""


class LeftOutError(Exception):
    """A cell cannot run here, which does not count as a failure; the message is one line."""


Play = Callable[[Run], None]
