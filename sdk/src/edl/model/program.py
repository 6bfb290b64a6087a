"""A user's file, run and checked: which functions it gives."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Union

from edl.model import functions
from edl.model.errors import ModelError
from edl.model.outline import check
from edl.model.trouble import own, user_error

PathLike = Union[str, "os.PathLike[str]"]
_FINGERPRINT = 12
"""Hexadecimal digits: 48 bits tell any two versions of one file apart."""


@dataclass(frozen=True)
class Model:
    """What a user's file gives."""

    path: Path
    code: dict[str, str]
    """What all trainers of a job must have alike: a fingerprint of the file and of its neighbours."""
    functions: Mapping[str, Callable[..., Any]]

    @property
    def name(self) -> str:
        """The file's, without its suffix."""
        return self.path.stem

    def has(self, name: str) -> bool:
        """Whether the file gives this function."""
        return name in self.functions


def load(path: PathLike) -> Model:
    """Runs a user's file once, and checks its functions; does not call them yet.

    Modules beside the file can be imported by it.

    Raises:
        ModelError: It cannot be read or lacks a function; the text names the file, the function and
            its signature.
        UserCodeError: It raises.
    """
    place = Path(path)
    source = check(place)
    before = set(sys.modules)
    found = vars(_run(place, source))
    given = {}
    for one in functions.FUNCTIONS:
        if one.name in found:
            given[one.name] = _checked(place, one, found[one.name])
        elif one.required:
            raise ModelError(functions.missing(place, one))
    code = {"model": _fingerprint(place, source, set(sys.modules) - before)}
    return Model(place, code, given)


def _run(place: Path, source: str) -> ModuleType:
    module = ModuleType(f"edl_model_{place.stem}")
    module.__file__ = str(place)
    folder = str(place.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[module.__name__] = module  # dataclasses and pickle look there
    try:
        program = compile(source, str(place), "exec")
        exec(program, vars(module))  # noqa: S102 - the program is what the user asked for
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise user_error(place, f"{place} cannot be run", error) from error
    return module


def _fingerprint(place: Path, source: str, imported: set[str]) -> str:
    """Of the file, and of what it imported from beside it; wherever their folder is."""
    found, home = hashlib.sha256(source.encode()), place.resolve().parent
    beside = {}
    for module in (sys.modules.get(name) for name in imported):
        file = getattr(module, "__file__", None)
        if file is not None and own(home, file) and Path(file).resolve() != place.resolve():
            beside[Path(file).resolve().relative_to(home).as_posix()] = Path(file)
    for name in sorted(beside):
        found.update(name.encode())
        found.update(beside[name].read_bytes())
    return found.hexdigest()[:_FINGERPRINT]


def _checked(place: Path, function: functions.Function, found: Any) -> Callable[..., Any]:
    if not callable(found):
        raise ModelError(functions.no_function(place, function, f"{type(found).__name__!r}"))
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # of some functions written in C nothing is known
        return found  # type: ignore[no-any-return]
    try:
        signature.bind(*function.arguments)
    except TypeError:
        text = functions.other_arguments(place, function, str(signature))
        raise ModelError(text) from None
    return found  # type: ignore[no-any-return]
