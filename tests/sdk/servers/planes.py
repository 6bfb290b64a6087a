"""Data and options of training with parameter servers."""

from typing import Any

import edl

from tests.sdk.servers.trained import points

UNSAVED: dict[str, Any] = {"checkpoint_seconds": 0.0}
"""No checkpoints."""


def plane(**options: Any) -> edl.Dataset:
    """Points in a data set."""
    return edl.from_arrays("points", *points(**options))
