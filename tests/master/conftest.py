"""Fixtures of the master's tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.master.serving import Served


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignores a file for which Schemathesis makes calls at collection, for seconds per worker."""
    if collection_path.name == "test_openapi_limits.py" and "not soak" in config.option.markexpr:
        return True
    return None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory where possible: journals are synced thousands of times here."""
    memory = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master for arbitrary calls."""
    served = Served(tmp_path_factory.mktemp("openapi"), heartbeat_s=60.0)
    yield f"http://127.0.0.1:{served.port}"
    served.stop()
