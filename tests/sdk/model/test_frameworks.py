"""Modules of frameworks are entry points, which a source tree has without being installed."""

import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import edl
import pytest
from edl import entry_points
from edl.model import frameworks, numpy_adapter

SDK = Path(edl.__file__).parents[2]


def test_the_sdk_declares_its_own_modules() -> None:
    """The table for source trees and the distribution name the same modules."""
    project: Any = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]

    assert project["entry-points"] == frameworks.BUILT_IN


def test_a_source_tree_needs_no_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the metadata of any distribution."""
    monkeypatch.setattr(entry_points, "installed", lambda _: {})

    assert frameworks.load(frameworks.ADAPTERS, "numpy") is numpy_adapter


def test_an_installed_module_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any distribution on the path declares it."""
    metadata = tmp_path / "adapters_of_a_test-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: adapters-of-a-test\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[edl.adapters]\nabacus = adapters_of_a_test\n")
    (tmp_path / "adapters_of_a_test.py").write_text("NAME = 'abacus'\n")
    monkeypatch.syspath_prepend(tmp_path)

    module = frameworks.load(frameworks.ADAPTERS, "abacus")

    assert isinstance(module, ModuleType)
    assert module.NAME == "abacus"
