"""The change of a mutant, as a diff and as the lines that identify it."""

import difflib
from dataclasses import dataclass

_CONTEXT = 2
_HEAD = 2
"""Header lines of a diff."""


@dataclass(frozen=True, slots=True)
class Patch:
    """The change of a file by one mutation."""

    line: int
    """The first changed line, from 1."""
    before: str
    """The removed lines, each stripped."""
    after: str
    diff: str
    """A unified diff, which `git apply` can apply to the tree."""


def patch(file: str, code: str, mutated: str) -> Patch:
    """Computes the change between a file's code and its mutated code.

    Raises:
        ValueError: They are equal.
    """
    old, new = code.splitlines(keepends=True), mutated.splitlines(keepends=True)
    lines = list(difflib.unified_diff(old, new, f"a/{file}", f"b/{file}", n=_CONTEXT))
    if not lines:
        raise ValueError(f"a mutant of {file} changes nothing")
    changes = [
        tag
        for tag in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag[0] != "equal"
    ]
    return Patch(
        line=changes[0][1] + 1,
        before=_changed(lines, "-"),
        after=_changed(lines, "+"),
        diff="".join(lines),
    )


def _changed(lines: list[str], sign: str) -> str:
    return "\n".join(line[1:].strip() for line in lines[_HEAD:] if line.startswith(sign))
