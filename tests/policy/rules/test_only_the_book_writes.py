"""Rules decide; `policy.planning.book` alone writes capacity, quotas, load and the entries of jobs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import policy.planning.rules

RULES = Path(policy.planning.rules.__file__).parent
_WRITES = frozenset(
    {
        *("reserve", "unreserve", "release", "claim", "waive", "remove", "book"),
        *("add_leaving", "add_expected", "add_reclaimable"),
    }
)
"""Methods of the book, and of what it has, that change something."""
_OF_A_RULE = frozenset({"self", "pacing"})
"""Objects that a rule makes for itself."""
_TRIAL = "trial.py"
"""Undoes what it reserves, and is tested for that."""


def _names(node: ast.expr) -> list[str]:
    """The names of a chain of attributes, such as `self`, `_book`, `quotas`."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [*names, node.id][::-1] if isinstance(node, ast.Name) else names[::-1]


def _targets(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield node.target


def _writes(source: str) -> list[str]:
    """The writes in a rule to anything but variables and attributes of its own objects."""
    tree = ast.parse(source)
    written = [
        target.value if isinstance(target, ast.Subscript) else target for target in _targets(tree)
    ]
    chains = [_names(target) for target in written if isinstance(target, ast.Attribute)]
    found = [
        ".".join(c) for c in chains if c[0] not in _OF_A_RULE or {"_book", "facts"} & {*c[:-1]}
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names = _names(node.func)
            if names[-1] in _WRITES and {"book", "_book", "entry"} & {*names[:-1]}:
                found.append(".".join(names))
    return found


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(RULES.glob("*.py")) if path.name != _TRIAL],
    ids=lambda p: p.stem,
)
def test_a_rule_writes_nothing(path: Path) -> None:
    """It has no assignment to an attribute of the book or a job, and calls no method that changes them."""
    assert _writes(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "entry.count += 1",
        "book.burst = True",
        "self._book.offered[key] = 1",
        "book.capacity.reserve(node, requests)",
        "self._book.quotas.release(job, pods)",
        "entry.remove(pod)",
    ],
)
def test_a_write_is_found(source: str) -> None:
    """The check knows assignments and calls, of functions and of methods."""
    assert len(_writes(source)) == 1
