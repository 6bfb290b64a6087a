"""Loads the modules for a framework's models by entry points, so that `edl.model` imports no framework."""

from __future__ import annotations

import importlib
from typing import Any

from edl import entry_points

ADAPTERS = "edl.adapters"
"""Entry point group of modules that implement `edl.model.protocols.AdapterModule`."""
READERS = "edl.readers"
"""Entry point group of modules that read parameters from a framework's checkpoints and exports."""
BUILT_IN = {
    ADAPTERS: {
        "numpy": "edl.model.numpy_adapter",
        "paddle": "edl.model.paddle",
        "torch": "edl.torch.user_model",
    },
    READERS: {"torch": "edl.torch.state.saved_model"},
}
"""The entry points in sdk/pyproject.toml, repeated for source trees that are not installed."""


def load(group: str, framework: str) -> Any:
    """Imports the module for a framework from an installed distribution, or else from the SDK.

    Args:
        group: `ADAPTERS` or `READERS`.
        framework: Name of the framework in the group, such as "torch".
    """
    point = entry_points.installed(group).get(framework)
    return importlib.import_module(BUILT_IN[group][framework]) if point is None else point.load()
