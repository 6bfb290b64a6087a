"""Fixtures of the master's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.master.serving import Served


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignores a file for which Schemathesis makes calls at collection, for seconds per worker."""
    is_slow = collection_path.name == "test_openapi_limits.py"
    if is_slow and not config.pluginmanager.hasplugin("schemathesis"):
        return True
    return None


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master for arbitrary calls."""
    served = Served(tmp_path_factory.mktemp("openapi"), heartbeat_s=60.0)
    yield f"http://127.0.0.1:{served.port}"
    served.stop()
