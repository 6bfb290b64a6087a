"""What `python -m bench torch` makes of trainers that do not come."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import torch_changes
from bench.benchmark import Setting

_FIGURES = {"kill_s": 0.4, "freeze_s": 1.3, "leave_s": 0.1, "growth_s": 0.2, "step_s": 0.1}


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is reported; torch and torchft are there."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torchft").mkdir()
    monkeypatch.setattr(torch_changes, "TORCH", tmp_path)
    monkeypatch.setattr(torch_changes, "_TORCHFT", tmp_path)
    monkeypatch.setattr(torch_changes, "cost", lambda *_: {"cost": 0.01})
    return []


def _measured(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], failing: str
) -> dict[str, dict[str, Any]]:
    def figures(name: str) -> Callable[..., dict[str, float]]:
        def measure(_: Path, count: int, megabytes: int) -> dict[str, float]:
            if name == failing and (count, megabytes) == (8, 10):
                raise RuntimeError("the trainers did not come that far in 300 s")
            return _FIGURES

        return measure

    monkeypatch.setattr(torch_changes, "changes", figures("edl"))
    monkeypatch.setattr(torch_changes, "torchft_changes", figures("torchft"))
    return torch_changes.run(Setting((1, 2, 3), 1, lines.append)).raw


def test_trainers_of_torchft_that_do_not_come_end_nothing(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    """They are reported and left out; all others are measured."""
    raw = _measured(monkeypatch, lines, "torchft")

    assert "torch: torchft_8_10_mb: the trainers did not come that far in 300 s" in lines
    assert "torchft_8_10_mb" not in raw
    assert len([key for key in raw if key.startswith("torchft_")]) == 5
    assert len([key for key in raw if key.startswith("edl_")]) == 6
    assert raw["step"] == {"cost": 0.01}


def test_trainers_of_edl_that_do_not_come_end_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    """A bar that is not measured is not met."""
    with pytest.raises(RuntimeError, match="did not come that far"):
        _measured(monkeypatch, lines, "edl")
