"""The image of EDL's servers as `deploy/Dockerfile` makes it, without Docker and without a registry.

What Docker takes from its base, this takes from this machine: the interpreter and its library. The
packages are those of `deploy/runtime.lock`, in its versions, and nothing else; code is compiled, since
the root of a container is read-only. No shell, no tools. Linux with glibc.
"""

import py_compile
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement

from e2e.cluster.errors import ClusterError
from e2e.cluster.machine.image import ContainerSettings, Entry, write
from e2e.cluster.machine.python_image import APP, ENV, ROOT, base, project_packages

LOCK = ROOT / "deploy" / "runtime.lock"
NAME = "edl"
"""What `deploy/base` calls it; overlays and the chart name a registry."""
SETTINGS = ContainerSettings((), ENV, APP, "65532:65532")
_SDK = "edl"
_TAG = sys.implementation.cache_tag
_PIN = re.compile(r"^([a-z0-9-]+==[^\\\n]+)", re.MULTILINE)


def build(target: Path, name: str, root: Path = ROOT) -> Path:
    """Writes the image.

    Args:
        target: The tar file.
        name: With registry and tag, as manifests name it.
        root: The tree whose servers are in it; the packages are those of this tree's lock.

    Raises:
        ClusterError: an installed package has another version than the lock; says which.
        OSError: a file cannot be read, or the disk is full.
    """
    return write(target, name, layers(root), SETTINGS)


def layers(root: Path = ROOT) -> list[list[Entry]]:
    """What is in it: the interpreter with the locked packages, and the project.

    Raises:
        ClusterError: see `build`.
    """
    return [base(packages(LOCK.read_text(encoding="utf-8"))), [*_compiled(root)]]


def packages(lock: str) -> list[str]:
    """The names in a lock file that this platform needs, after a look at what is installed.

    Raises:
        ClusterError: one is missing here or has another version.
    """
    pins = [Requirement(text.strip()) for text in _PIN.findall(lock)]
    needed = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
    for pin in needed:
        try:
            installed = version(pin.name)
        except PackageNotFoundError:
            installed = "none"
        if f"=={installed}" != str(pin.specifier):
            raise ClusterError(
                f"the image needs {pin.name}{pin.specifier}, installed is {installed}; `make install`"
            )
    return [pin.name for pin in needed]


def _compiled(root: Path) -> Iterator[Entry]:
    """A tree's packages with their byte code, which stays valid whatever the files' times."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    with tempfile.TemporaryDirectory() as place:
        draft = Path(place, "code.pyc")
        for entry in project_packages(root):
            source = Path(entry.path)
            if source.relative_to(APP).parts[0] == _SDK or not isinstance(entry.content, Path):
                continue
            py_compile.compile(
                str(entry.content), str(draft), entry.path, doraise=True, invalidation_mode=mode
            )
            yield entry
            cached = source.parent / "__pycache__" / f"{source.stem}.{_TAG}.pyc"
            yield Entry(str(cached), draft.read_bytes())
