"""The image of EDL's servers: the packages of its lock, compiled, and nothing that a taker-over could use."""

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import server_image
from e2e.cluster.machine.server_image import LOCK

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux with glibc")


@pytest.fixture(scope="module")
def paths() -> set[str]:
    """All files of the image."""
    return {entry.path for layer in server_image.layers() for entry in layer}


def test_it_has_no_shell_no_tools_and_no_root(paths: set[str]) -> None:
    """Nor pip, the tests' packages, or the SDK, which trainers have."""
    names = {Path(path).name for path in paths}
    packages = {
        Path(path).parts[5] for path in paths if path.startswith("/usr/lib/edl/site-packages/")
    }

    assert server_image.SETTINGS.user == "65532:65532"
    assert not names & {"sh", "bash", "pip", "busybox", "apt", "gcc"}
    assert not packages & {"pip", "pytest", "setuptools", "hypothesis", "matplotlib"}
    assert "/app/edl/__init__.py" not in paths
    assert {f"/app/{room}/__main__.py" for room in ("webhook", "extender", "reconciler")} <= set(
        paths
    )


def test_every_module_of_a_server_is_compiled(paths: set[str]) -> None:
    """The root is read-only, so that each start would else compile all of them again."""
    sources = [path for path in paths if path.startswith("/app/") and path.endswith(".py")]
    compiled = {importlib.util.cache_from_source(path) for path in sources}

    assert len(sources) > 100
    assert compiled <= set(paths)


def test_another_version_than_the_lock_is_refused() -> None:
    """What is tested is what the image has."""
    text = LOCK.read_text().replace(f"orjson=={version('orjson')}", "orjson==0.0.1")

    assert "orjson" in server_image.packages(LOCK.read_text())
    with pytest.raises(ClusterError, match=r"needs orjson==0\.0\.1, installed is"):
        server_image.packages(text)
