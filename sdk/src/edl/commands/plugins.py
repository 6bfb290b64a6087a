"""Commands of other installed distributions, such as those of `kubectl edl`: entry points `edl.commands`.

An entry point is a name and a function that takes a command line, beginning with that name, and returns an
exit code. Nothing of theirs is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edl import entry_points

GROUP = "edl.commands"


def installed() -> dict[str, Any]:
    """Name -> entry point of each command that is installed."""
    return entry_points.installed(GROUP)


def run(words: Sequence[str]) -> int | None:
    """Runs the installed command that the first word names; None where there is none."""
    point = installed().get(words[0]) if words else None
    if point is None:
        return None
    command: Callable[[list[str]], int] = point.load()
    return command(list(words))


def epilog() -> str:
    """What the help says of them; "" where there are none."""
    names = ", ".join(sorted(installed()))
    return f"commands that ask the cluster, see `edl COMMAND --help`: {names}. " if names else ""
