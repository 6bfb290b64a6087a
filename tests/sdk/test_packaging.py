"""What a training image gets when it installs the SDK."""

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import files
from pathlib import Path

import edl
import edl_protocol
import pytest

HOME = Path(edl.__file__).parent
PROTOCOL = Path(edl_protocol.__file__).parent
MODULES = sorted([*HOME.rglob("*.py"), *PROTOCOL.rglob("*.py")])
EXTRAS = {
    **{name: {"numpy"} for name in ("collective", "sync", "servers", "model", "jobs")},
    "paddle": {"numpy", "paddle"},
    "torch": {"numpy", "torch"},
    "jax": {"numpy", "jax", "jaxlib"},
    "convert": {"yaml"},
    "state_tree.py": {"numpy"},  # where a state has arrays of it
    "overriding.py": {"typing_extensions"},  # of type checkers alone
    "frames.py": {"numpy"},
}
"""Packages that need more than the standard library; imported only when they are used."""


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize(
    "path", MODULES, ids=[str(path.relative_to(HOME.parent)) for path in MODULES]
)
def test_modules_need_the_standard_library_or_an_extra(path: Path) -> None:
    """Of Python 3.9; nothing of the control plane, which no training image has."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    parts = path.relative_to(HOME.parent).parts
    extra = set().union(*(EXTRAS.get(part, set()) for part in parts))

    for name in _imports(tree):
        top = name.partition(".")[0]
        assert top in ("edl", "edl_protocol") or top in sys.stdlib_module_names or top in extra, (
            name
        )


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = sys.modules["paddle"] = None
from edl.__main__ import main
import edl
sys.exit(main(sys.argv[1:]))
"""


def test_loops_and_submitting_need_no_extra(tmp_path: Path) -> None:
    """Without numpy and PaddlePaddle; training a model file names the missing package."""
    model = tmp_path / "model.py"
    model.write_text("model = loss = optimizer = print\n")
    words = ["--data", "/data", "--name", "a", "--image", "b", "--min", "1", "--max", "2"]
    submitted = _without_numpy("submit", str(model), *words)
    environ = {"EDL_MASTER": "http://127.0.0.1:1", "EDL_TOKEN": "a-token-of-this-test"}
    trained = _without_numpy("train", str(model), "--data", str(tmp_path), environ=environ)

    assert (submitted.returncode, submitted.stderr) == (0, "")
    assert trained.returncode == 2
    assert trained.stderr == "edl: models need numpy: pip install 'edl-sdk[numpy]'\n"


def _without_numpy(
    *words: str, environ: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", WITHOUT_NUMPY, *words],
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_nothing_else_is_installed() -> None:
    """No dependencies but in extras, and two names only: `edl` and `edl_protocol`."""
    project = tomllib.loads((HOME.parents[1] / "pyproject.toml").read_text())["project"]

    assert {path.name for path in HOME.parent.iterdir() if (path / "__init__.py").exists()} == {
        "edl",
        "edl_protocol",
    }
    assert project["dependencies"] == []
    assert set(project["optional-dependencies"]) == {"jax", "numpy", "paddle", "torch", "yaml"}
    assert files("edl-sdk") is not None
    assert (HOME / "py.typed").exists()


def test_public_names_are_sorted_and_exist() -> None:
    """`edl.__all__` is what the README may use."""
    assert sorted(edl.__all__) == edl.__all__
    assert all(hasattr(edl, name) for name in edl.__all__)
