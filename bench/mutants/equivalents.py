"""Mutants that were looked at and do what the code does: no test can tell them apart."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("equivalents.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """One such mutant; named by its lines, because numbers of lines change with every edit."""

    file: str
    """In a staged tree: the SDK's package is `edl/` there."""
    function: str
    before: str
    """The lines that it changes, without the space around them."""
    after: str
    reason: str
    """Why the two do the same."""


def load(path: Path = LIST) -> list[Equivalent]:
    """What the tracked list says.

    Raises:
        TypeError: A field is missing, or unknown.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", [])
    return [Equivalent(**entry) for entry in entries]


def reason(mutant: dict[str, Any], known: Sequence[Equivalent]) -> str | None:
    """Why this mutant is equivalent; None if nobody has found that it is."""
    for each in known:
        named = (each.file, each.function, each.before, each.after)
        if named == tuple(mutant[key] for key in ("file", "function", "before", "after")):
            return each.reason
    return None
