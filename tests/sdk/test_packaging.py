"""What a training image gets when it installs the SDK."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path

import edl
import pytest

HOME = Path(edl.__file__).parent
MODULES = sorted(HOME.rglob("*.py"))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(HOME)) for path in MODULES])
def test_modules_need_the_standard_library_only(path: Path) -> None:
    """Of Python 3.9; nothing of the control plane, which no training image has."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))

    for name in _imports(tree):
        top = name.partition(".")[0]
        assert top == "edl" or top in sys.stdlib_module_names, name


def test_nothing_else_is_installed() -> None:
    """No dependencies, and one name only: `edl`."""
    project = tomllib.loads((HOME.parents[1] / "pyproject.toml").read_text())["project"]

    assert project["dependencies"] == []
    assert files("edl-sdk") is not None
    assert (HOME / "py.typed").exists()


def test_public_names_are_sorted_and_exist() -> None:
    """`edl.__all__` is what the README may use."""
    assert sorted(edl.__all__) == edl.__all__
    assert all(hasattr(edl, name) for name in edl.__all__)
