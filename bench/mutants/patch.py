"""What a mutant changes, as a diff and as the lines that name it."""

import difflib
from dataclasses import dataclass

_CONTEXT = 2
_HEAD = 2
"""Lines of a diff that name the files."""


@dataclass(frozen=True, slots=True)
class Patch:
    """The difference that one mutation makes to a file."""

    line: int
    """Where the first change is, from 1."""
    before: str
    """The lines that go, each without the space around it."""
    after: str
    diff: str
    """As of `diff -u`: `git apply` puts the mutant into the tree."""


def patch(file: str, code: str, mutated: str) -> Patch:
    """What lies between a file's code and the same with one mutation.

    Raises:
        ValueError: They are the same.
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
