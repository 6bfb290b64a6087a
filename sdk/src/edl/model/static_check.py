"""Checks that a user's file compiles and defines the required functions, without running the file.

`edl submit`, which works without a framework, and `edl train` run this check before trainers start.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from edl.model.errors import ModelError
from edl.model.functions import FUNCTIONS, missing_message


def read_source(path: str | PathLike[str]) -> str:
    """Returns the text of a file.

    Raises:
        ModelError: The file cannot be read, or is not UTF-8.
    """
    try:
        # read_text would change line endings; utf-8-sig accepts the byte order mark of Windows editors
        return Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 text (byte {error.start})") from error


def check(path: str | PathLike[str]) -> str:
    """Checks that a file defines all required functions.

    Returns:
        The text of the file.

    Raises:
        ModelError: The file cannot be read or compiled, or lacks a function.
    """
    source = read_source(path)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        location = f"{path}:{line}" if line else str(path)
        raise ModelError(
            f"{location} is not valid Python: {getattr(error, 'msg', error)}"
        ) from error
    names = set(_names(tree.body))
    for function in FUNCTIONS:
        if function.required and not names & {function.name, "*"}:
            raise ModelError(missing_message(path, function))
    return source


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Yields the names that a module's statements bind; "*" for a star import."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in statement.names)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            nodes = (node for target in targets for node in ast.walk(target))
            yield from (node.id for node in nodes if isinstance(node, ast.Name))
        else:
            yield from _names(_inner(statement))


def _inner(statement: ast.stmt) -> list[ast.stmt]:
    """Returns the statements nested in `if`, `try` or `with`, because these bind module names, too."""
    statements: list[ast.stmt] = []
    for name in ("body", "orelse", "finalbody"):
        statements += getattr(statement, name, None) or []
    for handler in getattr(statement, "handlers", ()):
        statements += handler.body
    return statements
