"""The examples' data, for tests of commands."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sdk.commands.calls import ROOT


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples' data."""
    folder = tmp_path_factory.mktemp("data")
    program = [sys.executable, str(ROOT / "examples/models/make_data.py"), str(folder)]
    subprocess.run(program, check=True, timeout=60, capture_output=True)  # noqa: S603 - our own program
    return folder
