"""What `edl.torch` says where torch is missing or cannot be used."""

import importlib
from types import SimpleNamespace
from typing import Any

import edl.torch
import pytest
from edl import SettingError
from edl.torch.requirement import require_torch, torch_problem


def distributed(*, available: bool = True, gloo: bool = True) -> Any:
    """A module torch.distributed."""
    return SimpleNamespace(is_available=lambda: available, is_gloo_available=lambda: gloo)


@pytest.mark.parametrize("version", ["2.7.0", "2.15.0+cu132", "2.15.0a0+git1", "3.0"])
def test_newer_versions_are_accepted(version: str) -> None:
    """Whatever their build is called."""
    assert torch_problem(version, distributed()) == ""


@pytest.mark.parametrize("version", ["1.13.1", "2.6.0+cpu"])
def test_older_versions_are_named(version: str) -> None:
    """With the oldest one that works, and how to get a newer one."""
    text = torch_problem(version, distributed())
    assert version in text
    assert "2.7 or newer (pip install --upgrade torch)" in text


@pytest.mark.parametrize("lacking", ["available", "gloo"])
def test_a_torch_without_gloo_is_named(lacking: str) -> None:
    """With the wheel that has it."""
    assert "without gloo" in torch_problem("2.15.0", distributed(**{lacking: False}))


def test_a_missing_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, when a name of the package is used first."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SettingError, match=r"edl\.torch needs torch .*pip install torch"):
        require_torch()
    with pytest.raises(SettingError):
        _ = edl.torch.Training
    with pytest.raises(AttributeError, match="no attribute 'Trainings'"):
        _ = edl.torch.Trainings
