"""A pytest plugin: fast tests first, so that most mutants are found out in milliseconds."""

import json
from pathlib import Path

import pytest

STATS = Path("mutmut-stats.json")
"""What mutmut has measured, in the folder that tests run in; absent while it measures."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By how long each has taken; those that were not measured keep their order, at the end."""
    if not STATS.exists():
        return
    seconds = json.loads(STATS.read_text(encoding="utf-8"))["duration_by_test"]
    items.sort(key=lambda item: seconds.get(item.nodeid, float("inf")))
