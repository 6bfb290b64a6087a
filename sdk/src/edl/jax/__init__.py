"""Elastic training with JAX; docs/frameworks.md. The first use of a name imports jax."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from edl.jax.requirement import require_jax

if TYPE_CHECKING:
    from edl.jax.rounds import JaxRounds

__all__ = ["JaxRounds"]


def __getattr__(name: str) -> Any:
    """Imports the object of this name.

    Raises:
        SettingError: jax is missing or too old.
    """
    if name not in __all__:
        raise AttributeError(f"module 'edl.jax' has no attribute {name!r}")
    require_jax()
    return getattr(importlib.import_module("edl.jax.rounds"), name)
