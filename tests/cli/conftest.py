"""Fixtures of the commands' tests."""

import pytest

from tests.cli.cluster import Cli, make_cli


@pytest.fixture
def edl(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs commands on a cluster in memory."""
    return make_cli(monkeypatch)
