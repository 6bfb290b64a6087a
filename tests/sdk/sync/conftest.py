"""A master for trainers in threads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.master.serving import Served


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Served]:
    """A master in a thread."""
    served = Served(tmp_path / "journal")
    yield served
    served.stop()
