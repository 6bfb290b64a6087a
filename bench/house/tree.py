"""The source tree as syntax trees: which modules there are, and what they define. Reads files only."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOMS = (
    "policy",
    "kube",
    "runtime",
    "webhook",
    "admin",
    "cli",
    "extender",
    "reconciler",
    "master",
    "page",
    "pserver",
    "simulator",
    "sdk/src",
)
"""Folders of production code, as in docs/architecture.md."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of Python.

    Attributes:
        path: Relative to the project's root, with slashes.
        text: Its source.
    """

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text)

    @property
    def name(self) -> str:
        """As it is imported: `policy.plan`."""
        path = self.path.removeprefix("sdk/src/").removesuffix(".py").removesuffix("/__init__")
        return path.replace("/", ".")

    @property
    def room(self) -> str:
        """The folder of `ROOMS` that it lies in; the first part of its path for all others."""
        return next(
            (room for room in ROOMS if self.path.startswith(f"{room}/")), self.path.split("/")[0]
        )

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.text.count("\n")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of its syntax."""
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        """Functions and methods, nested ones too."""
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Classes, nested ones too."""
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    def bound_names(self) -> Iterator[str]:
        """Each name that an assignment, a loop, a `with` or a parameter binds, once per binding."""
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.arg):
                yield node.arg


def length(function: Function) -> int:
    """Returns the number of lines of a function, without its decorators and its docstring."""
    lines = _lines(function)
    return lines if ast.get_docstring(function) is None else lines - _lines(function.body[0])


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def modules(root: Path, *folders: str) -> list[Module]:
    """The modules in these folders of a project, in the order of their paths."""
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return [Module(path.relative_to(root).as_posix(), path.read_text("utf-8")) for path in paths]
