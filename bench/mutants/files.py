"""The files in a staged tree through which the command and a room's process communicate.

The command also reads mutmut's result files while mutmut writes them.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CANDIDATES = Path("candidates.json")
"""The numbers of the mutants of each file."""
SAMPLE = Path("sample.json")
"""The numbers of the sampled mutants of each file."""
MUTANTS = Path("mutants.json")
"""Their descriptions: name, file, line, function, lines before and after, diff."""
SECOND_TRY = Path("again.json")
"""Exit codes of the mutants tried again, by name."""
OUTPUT = Path("mutants")
"""Mutmut's folder: the mutated tree and the results."""


def read(path: Path) -> Any:
    """Reads a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, value: object) -> None:
    """Writes a JSON file atomically: concurrent readers get the previous content."""
    whole = path.with_suffix(".new")
    whole.write_text(json.dumps(value, indent=1), encoding="utf-8")
    whole.replace(path)


def exit_codes(folder: Path, files: Iterable[str]) -> dict[str, int]:
    """The exit codes of the tests of all mutants tried so far, by name."""
    codes: dict[str, int] = {}
    for file in sorted(set(files)):
        try:
            results = read(folder / OUTPUT / f"{file}.meta")
        except (FileNotFoundError, json.JSONDecodeError):
            continue  # not begun, or mutmut writes it right now
        tried = results["exit_code_by_key"].items()
        codes |= {name: code for name, code in tried if code is not None}
    return codes
