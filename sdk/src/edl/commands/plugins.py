"""Finds commands, such as those of `kubectl edl`, that other distributions add as entry points.

An entry point of the group `edl.commands` names a function that takes the command line, including
the command's name, and returns an exit code. A distribution is imported only when one of its
commands runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edl import entry_points

GROUP = "edl.commands"


def installed() -> dict[str, Any]:
    """Returns name -> entry point of each installed command."""
    return entry_points.installed(GROUP)


def run(words: Sequence[str]) -> int | None:
    """Runs the installed command named by the first word; returns None if there is none."""
    point = installed().get(words[0]) if words else None
    if point is None:
        return None
    command: Callable[[list[str]], int] = point.load()
    return command(list(words))


def epilog() -> str:
    """Returns the text about installed commands for the help; "" if there are none."""
    names = ", ".join(sorted(installed()))
    return f"commands that query the cluster (see `edl COMMAND --help`): {names}. " if names else ""
