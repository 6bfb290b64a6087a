"""The command line of modules that write one file of the repository from the code."""

from collections.abc import Callable, Sequence
from pathlib import Path

from runtime.command_line import Parser


def write(
    module: str,
    description: str | None,
    file: Path,
    text: Callable[[], str],
    argv: Sequence[str] | None,
) -> int:
    """Writes the file, or the one that `--output` names.

    Args:
        module: The module's name, for its help.
        description: What it does.
        file: Where the file belongs.
        text: Returns its content.
        argv: The arguments; those of the process by default.

    Returns:
        0.
    """
    parser = Parser(prog=f"python -m {module}", description=description)
    parser.add_argument("--output", type=Path, default=file, help="the file; default: %(default)s")
    output: Path = parser.parse_args(argv).output
    output.write_text(text(), "utf-8")
    return 0
