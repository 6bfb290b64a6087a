"""Fixtures of this room."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory where there is one: journals are synced thousands of times here."""
    memory = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as found:
        yield Path(found)
