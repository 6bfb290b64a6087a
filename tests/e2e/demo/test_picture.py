"""The picture of a run."""

from pathlib import Path
from typing import Any

import pytest

from e2e.demo.picture import draw

_PNG = b"\x89PNG\r\n\x1a\n"


def _curves() -> dict[str, Any]:
    return {
        "seconds": [0.0, 0.5, 1.0],
        "services_wanted": [4, 4, 2],
        "services_running": [0, 4, 2],
        "trainers_running": {"job-1": [0, 1, 2], "job-2": [0, 1, 1]},
        "cpu_in_use_percent": [0.0, 80.0, 90.0],
    }


@pytest.mark.parametrize("names", [("EDL",), ("EDL", "plain Kubernetes")])
def test_one_or_two_runs_are_drawn(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A PNG of 1 200 pixels' width appears, its folder with it."""
    path = tmp_path / "demo" / "demo.png"
    draw(path, {name: _curves() for name in names}, nodes=2, cpu=36)
    data = path.read_bytes()
    assert data.startswith(_PNG)
    assert int.from_bytes(data[16:20]) == 1200
