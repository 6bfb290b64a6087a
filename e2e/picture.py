"""Pages with panels of one style, written as PNG files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 100


@contextmanager
def page(path: Path, title: str, *, width_in: float, height_in: float) -> Iterator[Figure]:
    """An empty figure for the block to draw on; written at its end.

    Args:
        path: A PNG file; its folder is created.
        title: One line above all panels.
        width_in: Inches of 100 pixels.
        height_in: The same.
    """
    import matplotlib as mpl  # noqa: PLC0415 - takes a second, which commands that draw nothing save
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    mpl.rcParams.update({"font.size": 12, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(width_in, height_in), dpi=_DPI, layout="constrained")
    figure.suptitle(title, fontsize=15, weight="bold")
    yield figure
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
