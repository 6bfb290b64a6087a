"""What a user's file says without being run: whether it can be read, and which functions it has.

For those who hand it to others, and need no framework: `edl submit`, and whoever starts trainers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from edl.model.errors import ModelError
from edl.model.functions import FUNCTIONS, missing


def text(path: str | PathLike[str]) -> str:
    """A file's text.

    Raises:
        ModelError: There is none, or it is not text.
    """
    try:
        # not read_text, which would change line ends
        return Path(path).read_bytes().decode()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not text in UTF-8 (byte {error.start})") from error


def check(path: str | PathLike[str]) -> str:
    """Looks for all functions that a model's file must have.

    Returns:
        Its text.

    Raises:
        ModelError: It cannot be read or compiled, or lacks one; in one line.
    """
    found = text(path)
    try:
        tree = ast.parse(found)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}:{line}" if line else str(path)
        raise ModelError(f"{place} is no Python: {getattr(error, 'msg', error)}") from error
    names = set(_names(tree.body))
    for function in FUNCTIONS:
        if function.required and not names & {function.name, "*"}:
            raise ModelError(missing(path, function))
    return found


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """What a module's statements bind; "*" for whatever is imported unnamed."""
    for one in body:
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield one.name
        elif isinstance(one, (ast.Import, ast.ImportFrom)):
            yield from (each.asname or each.name for each in one.names)
        elif isinstance(one, (ast.Assign, ast.AnnAssign)):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            found = (each for target in targets for each in ast.walk(target))
            yield from (each.id for each in found if isinstance(each, ast.Name))
        else:
            yield from _names(_inner(one))


def _inner(one: ast.stmt) -> list[ast.stmt]:
    """Statements inside another that still bind names of the module: `if`, `try`, `with`."""
    found: list[ast.stmt] = []
    for name in ("body", "orelse", "finalbody"):
        found += getattr(one, name, None) or []
    for handler in getattr(one, "handlers", ()):
        found += handler.body
    return found
