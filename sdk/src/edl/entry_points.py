"""Finds the entry points of installed distributions without importing them."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Any


def installed(group: str) -> dict[str, Any]:
    """Returns a group's entry points by name."""
    if sys.version_info >= (3, 10):
        points = metadata.entry_points(group=group)
    else:
        points = metadata.entry_points().get(group, ())
    return {point.name: point for point in points}
