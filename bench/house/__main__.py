"""`python -m bench.house`: how the code base compares with model code bases, point by point."""

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.house.points import POINTS, Project
from bench.house.reasons import class_reasons
from bench.house.tree import ROOMS, modules
from runtime.command_line import Parser

_ROOT = Path(__file__).parents[2]


def read_project(root: Path) -> Project:
    """Reads what the points measure.

    Raises:
        OSError: The folder is not the project's.
    """
    documents = [root / "README.md", *(root / "docs").rglob("*.md")]
    texts = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in documents}
    return Project(
        production=modules(root, *ROOMS),
        tests=modules(root, "tests"),
        config=tomllib.loads((root / "pyproject.toml").read_text("utf-8")),
        documents=texts,
        complex_functions=_complex_functions(root),
        class_reasons=class_reasons(texts.get("docs/glossary.md", "")),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the points.

    Returns:
        0; 1 where a point misses its bar.
    """
    parser = Parser(prog="python -m bench.house", description=__doc__)
    parser.add_argument(
        "--faults", action="store_true", help="list where each point misses its bar"
    )
    arguments = parser.parse_args(argv)
    project = read_project(_ROOT)
    points = [measure(project) for measure in POINTS]
    table = Table(title="the house, point by point", box=None, title_justify="left")
    for heading in ("", "point", "this tree", "bar", ""):
        table.add_column(heading)
    for number, point in enumerate(points, 1):
        table.add_row(
            str(number), point.title, point.measured, point.bar, "ok" if point.met else "MISSED"
        )
    console = Console()
    console.print(table)
    if arguments.faults:
        for point in points:
            for fault in () if point.met else point.faults:
                console.print(f"{point.title}: {fault}", highlight=False, soft_wrap=True)
    return int(not all(point.met for point in points))


def _complex_functions(root: Path) -> int:
    """What ruff finds where its waivers are ignored."""
    words = ["check", "--select", "C901", "--ignore-noqa", "--output-format", "concise", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *words, *ROOMS],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.count(" C901 ")


if __name__ == "__main__":
    sys.exit(main())
