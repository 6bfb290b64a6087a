"""The house: each point can miss its bar, and this tree keeps the bars it has reached."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.house import points
from bench.house.__main__ import read_project
from bench.house.points import POINTS, Point, Project
from bench.house.reasons import class_reasons
from bench.house.tree import Module

ROOT = Path(__file__).parents[2]
OPEN: set[str] = set()
"""Points that this tree does not reach yet. It only becomes smaller."""

CONTRACT = {
    "name": "The core is pure",
    "type": "forbidden",
    "source_modules": ["policy"],
    "forbidden_modules": ["socket", "os", "time"],
}
CONFIG: dict[str, Any] = {
    "tool": {
        "ruff": {"lint": {"mccabe": {"max-complexity": 10}}},
        "mypy": {"strict": True, "files": ["policy", "tests"]},
        "importlinter": {"root_packages": ["policy"], "contracts": [CONTRACT]},
        "coverage": {"run": {"branch": True}, "report": {"fail_under": 95}},
    }
}
PURE = Module(
    "policy/plan.py",
    '"""A plan."""\n\n\ndef plan(size: int) -> int:\n    """Half."""\n    return size // 2\n',
)
TESTS = [Module(f"tests/test_{place}.py", "import hypothesis\n" * 10) for place in range(7)]
DOCUMENTS = {
    "README.md": "`make demo`, `make test`; read docs/architecture.md",
    "docs/decisions/0001-plan.md": "Why.",
    "docs/architecture.md": "See [decision 0001](decisions/0001-plan.md).",
}
GOOD = Project([PURE], TESTS, CONFIG, DOCUMENTS, complex_functions=0)


def measured(project: Project, title: str) -> Point:
    """The point of that title."""
    return next(point for point in (measure(project) for measure in POINTS) if point.title == title)


def with_module(path: str, text: str) -> Project:
    """The good project, with another production module."""
    return replace(GOOD, production=[PURE, Module(path, f'"""It."""\n{text}')])


def with_contract(**changes: Any) -> Project:
    """The good project, with another import contract."""
    linter = {"root_packages": ["policy"], "contracts": [{**CONTRACT, **changes}]}
    return replace(GOOD, config={"tool": {**CONFIG["tool"], "importlinter": linter}})


@pytest.mark.parametrize("measure", POINTS, ids=lambda measure: measure.__name__)
def test_a_good_project_reaches_every_bar(measure: Any) -> None:
    """Each point can be met."""
    assert measure(GOOD).met, measure(GOOD)


LONG_FUNCTION = "def long() -> None:\n" + "    pass\n" * points.MAX_FUNCTION
THREE_NAMES = "found = made = told = 1\n"
BAD = {
    "Module size": with_module("policy/a.py", "pass\n" * points.MAX_LINES),
    "Function size": with_module("policy/a.py", LONG_FUNCTION),
    "Complexity": replace(GOOD, complex_functions=1),
    "Types": with_module("policy/a.py", "def bare(size): pass\n"),
    "Layers": with_contract(ignore_imports=["a -> b"]),
    "Pure share": with_contract(source_modules=["kube"]),
    "Seams": replace(GOOD, tests=[*TESTS, Module("tests/a.py", "import unittest.mock\n" * 10)]),
    "Determinism": with_module("policy/a.py", "import time\nNOW = time.time()\n"),
    "Errors": with_module("policy/errors.py", "class LostError(Exception):\n    '''It.'''\n"),
    "Docstrings": with_module("policy/a.py", "def bare() -> None: pass\n"),
    "Tests": replace(GOOD, tests=[*TESTS, Module("tests/a.py", "\n" * 401)]),
    "Properties": replace(GOOD, tests=TESTS[1:]),
    "Coverage": replace(
        GOOD,
        config={
            "tool": {
                **CONFIG["tool"],
                "coverage": {"run": {"branch": True}, "report": {"fail_under": 94}},
            }
        },
    ),
    "Names": with_module("policy/a.py", THREE_NAMES),
    "Decisions": replace(GOOD, documents={**DOCUMENTS, "docs/decisions/0002-x.md": "Why."}),
    "First hour": replace(GOOD, documents={**DOCUMENTS, "README.md": "`make demo`"}),
}


@pytest.mark.parametrize("title", BAD)
def test_a_fault_misses_the_bar_of_its_point_alone(title: str) -> None:
    """Each point can be missed."""
    missed = [point.title for point in (measure(BAD[title]) for measure in POINTS) if not point.met]

    assert title in missed
    assert set(missed) <= {title, "Tests", "Pure share", "Docstrings"}


def test_a_class_name_in_two_files_needs_a_reason() -> None:
    """From the glossary's table; a word elsewhere is not one."""
    twice = with_module("policy/a.py", "class Plan:\n    '''It.'''\n")
    other = Module("kube/b.py", "class Plan:\n    '''It.'''\n")
    twice = replace(twice, production=[*twice.production, other])
    glossary = (
        "## Names that stand twice\n\n| name | why |\n| --- | --- |\n| `Plan` | both plan |\n"
    )

    assert measured(twice, "Names").faults == ("Plan: kube/b.py, policy/a.py",)
    assert class_reasons(glossary) == {"Plan": "both plan"}
    assert measured(replace(twice, class_reasons=class_reasons(glossary)), "Names").met
    assert class_reasons("| `Plan` | both plan |\n") == {}


def test_this_tree_keeps_the_bars_it_has_reached() -> None:
    """And a point that it reaches now is taken off the list of open ones."""
    project = read_project(ROOT)
    missed = {
        point.title: point for point in (measure(project) for measure in POINTS) if not point.met
    }

    assert set(missed) == OPEN, [
        (title, point.measured, point.faults)
        for title, point in missed.items()
        if title not in OPEN
    ]
