"""What the tests of whole jobs in torch share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk.support.trainers import Job
from tests.sdk.torch.digits_jobs import TORCH


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A master, and trainers that end with the test."""
    monkeypatch.setenv("PYTHONPATH", str(TORCH))
    running = Job(tmp_path / "job", heartbeat_s=0.5)
    yield running
    running.close()
