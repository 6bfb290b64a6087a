"""Fixtures of this room."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.master.serving import Served


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Schemathesis makes the calls of that file while it collects: seconds of each worker."""
    if collection_path.name == "test_openapi_limits.py" and "not soak" in config.option.markexpr:
        return True
    return None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory where there is one: journals are synced thousands of times here."""
    memory = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as found:
        yield Path(found)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master that takes whatever comes."""
    served = Served(tmp_path_factory.mktemp("openapi"), heartbeat_s=60.0)
    yield f"http://127.0.0.1:{served.port}"
    served.stop()
