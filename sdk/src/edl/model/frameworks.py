"""Modules for models of one framework, named by entry points: `edl.model` imports no framework's package."""

from __future__ import annotations

import importlib
from typing import Any

from edl import entry_points

ADAPTERS = "edl.adapters"
"""Group of entry points: modules such as `edl.model.protocols.AdapterModule`."""
READERS = "edl.readers"
"""Group of entry points: modules that read parameters from checkpoints and exports of a framework."""
OWN = {
    ADAPTERS: {
        "numpy": "edl.model.numpy_adapter",
        "paddle": "edl.model.paddle",
        "torch": "edl.torch.user_model",
    },
    READERS: {"torch": "edl.torch.state.saved_model"},
}
"""The entry points of sdk/pyproject.toml, for a source tree that is on the path without being installed."""


def load(group: str, framework: str) -> Any:
    """Imports the module of a framework that a distribution has installed, or the SDK's own.

    Args:
        group: `ADAPTERS` or `READERS`.
        framework: Its name in the group, such as "torch".
    """
    point = entry_points.installed(group).get(framework)
    return importlib.import_module(OWN[group][framework]) if point is None else point.load()
