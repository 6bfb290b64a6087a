"""Mutants that were reviewed and behave as the original code, so that no test can detect them."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("equivalents.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """An equivalent mutant; identified by its lines, because line numbers change with edits."""

    file: str
    """Its path from the tree's root."""
    function: str
    before: str
    """The lines that it changes, stripped."""
    after: str
    reason: str
    """Why both behave equally."""


def load(path: Path = LIST) -> list[Equivalent]:
    """Loads the tracked list.

    Raises:
        ValueError: The file is not TOML, or the fields of an entry are wrong.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", [])
    names = [field.name for field in fields(Equivalent)]
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or sorted(entry) != sorted(names):
            raise ValueError(f"{path.name}: entry {number} needs exactly {', '.join(names)}")
    return [Equivalent(**entry) for entry in entries]


def reason(mutant: dict[str, Any], listed: Sequence[Equivalent]) -> str | None:
    """Why this mutant is equivalent; None if it is not listed."""
    for equivalent in listed:
        named = (equivalent.file, equivalent.function, equivalent.before, equivalent.after)
        if named == tuple(mutant[key] for key in ("file", "function", "before", "after")):
            return equivalent.reason
    return None
