import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from e2e.cluster.machine import python_image
from e2e.cluster.machine.image import Entry
from e2e.cluster.machine.python_image import APP, PYTHON, SITE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="images are Linux's")


@pytest.fixture(scope="module")
def base() -> dict[str, Entry]:
    """What is below the project, with one distribution and what that requires."""
    return {entry.path: entry for entry in python_image.base(["flask"])}


def test_the_interpreter_keeps_its_place(base: dict[str, Entry]) -> None:
    """`python` leads to it, for it finds its library beside its real place."""
    binary = base[PYTHON].link

    assert binary == str(Path(sys.executable).resolve())
    assert base[binary].mode == 0o755
    assert any(path.endswith("/encodings/utf_8.py") for path in base)


def test_the_libraries_it_needs_are_with_it(base: dict[str, Entry]) -> None:
    """The loader among them, which must be a program."""
    loaders = [entry for path, entry in base.items() if "/ld-linux" in path]

    assert any("/libc.so." in path for path in base)
    assert [oct(entry.mode) for entry in loaders] == ["0o755"]


def test_tests_and_graphics_are_not(base: dict[str, Entry]) -> None:
    """Half of a standard library is for nobody who trains."""
    parts = {part for path in base for part in Path(path).parts}

    assert not parts & {"test", "tests", "idlelib", "tkinter"}
    assert not [path for path in base if "libtk" in path or "_tkinter" in path]


def test_a_distribution_comes_with_what_it_requires(base: dict[str, Entry]) -> None:
    """Flask needs Werkzeug, which needs MarkupSafe; nobody asked for NumPy."""
    packages = {Path(path).relative_to(SITE).parts[0] for path in base if path.startswith(SITE)}

    assert {"flask", "werkzeug", "markupsafe"} <= packages
    assert "numpy" not in packages


def test_what_is_not_installed_is_named() -> None:
    """The error has the name in it."""
    with pytest.raises(PackageNotFoundError, match="no-such-thing"):
        python_image.base(["no-such-thing"])


def test_the_project_and_the_callers_files_are_on_top() -> None:
    """Rooms and SDK under one directory, without tests; a caller may add a program."""
    paths = {entry.path for entry in python_image.own({f"{APP}/train.py": b"print(1)"})}

    assert {f"{APP}/kube/client.py", f"{APP}/policy/names.py", f"{APP}/edl/__init__.py"} <= paths
    assert f"{APP}/train.py" in paths
    assert {Path(path).parts[2] for path in paths}.isdisjoint({"tests", "e2e", "bench"})
