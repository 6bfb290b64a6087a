"""Checks that the installed torch can be used."""

from __future__ import annotations

import importlib
from typing import Any

from edl.errors import SettingError, one_line

OLDEST = (2, 7)


def require_torch() -> None:
    """Imports torch.

    Raises:
        SettingError: torch is missing, too old, or has no gloo; the message names the remedy.
    """
    try:
        torch = importlib.import_module("torch")
        distributed = importlib.import_module("torch.distributed")
    except ImportError as error:
        raise SettingError(
            f"edl.torch needs torch ({one_line(error)}): pip install torch"
        ) from error
    problem = torch_problem(str(torch.__version__), distributed)
    if problem:
        raise SettingError(problem)


def torch_problem(version: str, distributed: Any) -> str:
    """Returns the reason why this version of torch cannot be used, or "" if it can be used.

    Args:
        version: Version of torch, such as "2.15.0+cu132".
        distributed: The module `torch.distributed`.
    """
    digits = [part for part in version.split("+", maxsplit=1)[0].split(".")[:2] if part.isdigit()]
    if tuple(map(int, digits)) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return (
            f"torch is {version}: edl.torch needs {oldest} or newer (pip install --upgrade torch)"
        )
    if not distributed.is_available() or not distributed.is_gloo_available():
        return (
            "this torch was built without gloo: install torch's ordinary wheel (pip install torch)"
        )
    return ""
