"""An API server in memory."""

import pytest

from kube.fake import FakeApi


@pytest.fixture
def fake() -> FakeApi:
    """An empty cluster."""
    return FakeApi()
