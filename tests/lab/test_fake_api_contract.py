"""The contract of an API server, held by the fake."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from lab.fake_api import FakeApi
from tests.kube.contract import ApiContract


class TestFake(ApiContract):
    """The contract tests, run against the fake."""

    @pytest.fixture
    def api(self) -> FakeApi:
        """An empty cluster."""
        return FakeApi()

    @pytest.fixture
    def namespace(self) -> str:
        """Any name works: the fake does not check whether a namespace exists."""
        return f"contract-{uuid4().hex[:8]}"

    @pytest.fixture
    def forget_history(self, api: FakeApi) -> Callable[[], None]:
        """Compaction."""
        return api.compact
