"""Mutants that were looked at and do what the code does: no test can tell them apart."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("equivalents.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """One such mutant; named by its lines, because numbers of lines change with every edit."""

    file: str
    """Its path from the tree's root."""
    function: str
    before: str
    """The lines that it changes, without the space around them."""
    after: str
    reason: str
    """Why the two do the same."""


def load(path: Path = LIST) -> list[Equivalent]:
    """What the tracked list says.

    Raises:
        ValueError: The file is not TOML, or an entry lacks a field or has another one.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", [])
    names = [each.name for each in fields(Equivalent)]
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or sorted(entry) != sorted(names):
            raise ValueError(f"{path.name}: entry {number} needs exactly {', '.join(names)}")
    return [Equivalent(**entry) for entry in entries]


def reason(mutant: dict[str, Any], known: Sequence[Equivalent]) -> str | None:
    """Why this mutant is equivalent; None if nobody has found that it is."""
    for each in known:
        named = (each.file, each.function, each.before, each.after)
        if named == tuple(mutant[key] for key in ("file", "function", "before", "after")):
            return each.reason
    return None
