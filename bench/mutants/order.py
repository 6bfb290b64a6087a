"""A pytest plugin that runs fast tests first, so that most mutants are killed in milliseconds."""

import json
from pathlib import Path

import pytest

STATS = Path("mutmut-stats.json")
"""Mutmut's measurements, in the folder in which tests run; absent during the measurement."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts tests by duration; unmeasured ones follow in their original order."""
    if not STATS.exists():
        return
    seconds = json.loads(STATS.read_text(encoding="utf-8"))["duration_by_test"]
    items.sort(key=lambda item: seconds.get(item.nodeid, float("inf")))
