"""What passes between the command and the process of a room: files in the staged tree.

The command reads mutmut's own files of results too, while mutmut writes them.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CANDIDATES = Path("candidates.json")
"""For each file the numbers of its mutants."""
SAMPLE = Path("sample.json")
"""For each file the numbers of the mutants that are tried."""
MUTANTS = Path("mutants.json")
"""What they are: name, file, line, function, lines before and after, diff."""
SECOND_TRY = Path("again.json")
"""Exit codes of those tried again, by name."""
OUTPUT = Path("mutants")
"""Mutmut's folder: the mutated tree and its results."""


def read(path: Path) -> Any:
    """What a JSON file says."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, value: object) -> None:
    """Writes it whole: whoever reads meanwhile sees the file before."""
    whole = path.with_suffix(".new")
    whole.write_text(json.dumps(value, indent=1), encoding="utf-8")
    whole.replace(path)


def exit_codes(folder: Path, files: Iterable[str]) -> dict[str, int]:
    """How the tests of each mutant that mutmut has tried ended, by its name."""
    codes: dict[str, int] = {}
    for file in sorted(set(files)):
        try:
            results = read(folder / OUTPUT / f"{file}.meta")
        except (FileNotFoundError, json.JSONDecodeError):
            continue  # not begun, or mutmut writes it right now
        tried = results["exit_code_by_key"].items()
        codes |= {name: code for name, code in tried if code is not None}
    return codes
