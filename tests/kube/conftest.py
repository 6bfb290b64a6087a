"""An API server in memory."""

import pytest

from lab.fake_api import FakeApi


@pytest.fixture
def fake() -> FakeApi:
    """An empty cluster."""
    return FakeApi()
