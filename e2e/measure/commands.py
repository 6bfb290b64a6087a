"""What commands that measure have in common: where their reports go, and how they end."""

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from e2e.measure.criteria import Criterion


def add_output(parser: ArgumentParser, directory: str, contents: str) -> None:
    """Adds `--output DIR`.

    Args:
        parser: Of the command.
        directory: The default.
        contents: What goes there, for the help: "report and logs go".
    """
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(directory),
        metavar="DIR",
        help=f"where {contents} (default: {directory})",
    )


def verdict(criteria: Sequence[Criterion], console: Console) -> int:
    """Prints which criteria are missed.

    Returns:
        The exit code: 1 if one is missed and STRICT is 1 in the environment, else 0.
    """
    missed = [criterion.name for criterion in criteria if not criterion.holds]
    if missed:
        console.print(f"missed: {', '.join(missed)}", style="yellow", highlight=False)
    return 1 if missed and os.environ.get("STRICT") == "1" else 0
