"""Checks that the installed jax can be used."""

from __future__ import annotations

import importlib

from edl.errors import SettingError, one_line

OLDEST = (0, 10)


def require_jax() -> None:
    """Imports jax.

    Raises:
        SettingError: jax is missing or too old; the message names the remedy.
    """
    try:
        jax = importlib.import_module("jax")
    except ImportError as error:
        raise SettingError(f"edl.jax needs jax ({one_line(error)}): pip install jax") from error
    problem = jax_problem(str(jax.__version__))
    if problem:
        raise SettingError(problem)


def jax_problem(version: str) -> str:
    """Returns the reason why this version of jax cannot be used, or "" if it can be used.

    Args:
        version: Version of jax, such as "0.10.2".
    """
    digits = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if digits < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return f"jax is {version}: edl.jax needs {oldest} or newer (pip install --upgrade jax)"
    return ""
