"""What `edl.jax` says where jax is missing or cannot be used."""

import importlib
from typing import Any

import edl.jax
import pytest
from edl import SettingError
from edl.jax.requirement import jax_problem, require_jax


@pytest.mark.parametrize("version", ["0.10.0", "0.10.2", "0.11.0.dev1", "1.0"])
def test_newer_versions_are_accepted(version: str) -> None:
    """Whatever comes behind their number."""
    assert jax_problem(version) == ""


@pytest.mark.parametrize("version", ["0.4.38", "0.9.1"])
def test_older_versions_are_named(version: str) -> None:
    """With the oldest one that works, and how to get a newer one."""
    text = jax_problem(version)
    assert version in text
    assert "0.10 or newer (pip install --upgrade jax)" in text


def test_a_missing_jax_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, when a name of the package is used first."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SettingError, match=r"edl\.jax needs jax .*pip install jax"):
        require_jax()
    with pytest.raises(SettingError):
        _ = edl.jax.JaxRounds
    with pytest.raises(AttributeError, match="no attribute 'Rounds'"):
        _ = edl.jax.Rounds
