"""Runs a user's file and checks its functions."""

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
from edl.model.static_check import check
from edl.model.user_errors import is_user_file, wrap_user_error

PathLike = Union[str, "os.PathLike[str]"]
_FINGERPRINT = 12
"""Hexadecimal digits of a fingerprint; their 48 bits suffice to distinguish versions of one file."""


@dataclass(frozen=True)
class Model:
    """A loaded model file and its functions."""

    path: Path
    code: dict[str, str]
    """The fingerprint of the file and of the modules in its folder that it imports, under "model".

    All trainers of a job must have the same fingerprint.
    """
    functions: Mapping[str, Callable[..., Any]]

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self.path.stem

    def has(self, name: str) -> bool:
        """Returns whether the file defines this function."""
        return name in self.functions


def load(path: PathLike) -> Model:
    """Runs a user's file once and checks its functions, without calling them.

    The file can import modules from its folder.

    Raises:
        ModelError: The file cannot be read or lacks a function; the message names the function and its
            signature.
        UserCodeError: The file raises an error.
    """
    file_path = Path(path)
    source = check(file_path)
    modules_before = set(sys.modules)
    names = vars(_run(file_path, source))
    user_functions = {}
    for function in functions.FUNCTIONS:
        if function.name in names:
            user_functions[function.name] = _checked(file_path, function, names[function.name])
        elif function.required:
            raise ModelError(functions.missing_message(file_path, function))
    code = {"model": _fingerprint(file_path, source, set(sys.modules) - modules_before)}
    return Model(file_path, code, user_functions)


def _run(file_path: Path, source: str) -> ModuleType:
    module = ModuleType(f"edl_model_{file_path.stem}")
    module.__file__ = str(file_path)
    folder = str(file_path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[module.__name__] = module  # dataclasses and pickle look modules up there
    try:
        # dont_inherit: this module's `from __future__ import annotations` must not apply to the file
        program = compile(source, str(file_path), "exec", dont_inherit=True)
        exec(program, vars(module))  # noqa: S102 - runs the program that the user named
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise wrap_user_error(file_path, f"cannot run {file_path}", error) from error
    return module


def _fingerprint(file_path: Path, source: str, imported: set[str]) -> str:
    """Hashes the file and the modules in its folder that it imported; the folder's path has no effect."""
    digest, home = hashlib.sha256(source.encode()), file_path.resolve().parent
    beside = {}
    for module in (sys.modules.get(name) for name in imported):
        file = getattr(module, "__file__", None)
        if (
            file is not None
            and is_user_file(home, file)
            and Path(file).is_file()  # `torch.ops` names a file that does not exist
            and Path(file).resolve() != file_path.resolve()
        ):
            beside[Path(file).resolve().relative_to(home).as_posix()] = Path(file)
    for name in sorted(beside):
        digest.update(name.encode())
        digest.update(beside[name].read_bytes())
    return digest.hexdigest()[:_FINGERPRINT]


def _checked(
    file_path: Path, function: functions.UserFunction, candidate: Any
) -> Callable[..., Any]:
    if not callable(candidate):
        raise ModelError(
            functions.not_callable_message(file_path, function, f"{type(candidate).__name__!r}")
        )
    try:
        signature = inspect.signature(candidate)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return candidate  # type: ignore[no-any-return]
    try:
        signature.bind(*function.arguments)
    except TypeError:
        text = functions.signature_message(file_path, function, str(signature))
        raise ModelError(text) from None
    return candidate  # type: ignore[no-any-return]
