"""An image with the running Python in it, this project's packages, and what they import.

Made of files of this machine, so it needs no registry and fits to what is being tested. The
interpreter keeps its place; `/usr/bin/python` leads to it. It has a shell only on request.
Linux with glibc.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

from packaging.requirements import Requirement

from e2e.cluster.machine.image import ContainerSettings, Entry, write

ROOT = Path(__file__).parents[3]
APP = "/app"
SITE = "/usr/lib/edl/site-packages"
PYTHON = "/usr/bin/python"
PROJECT = "edl-control-plane"

_UNUSED = {
    "site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3",
    "pydoc_data", "distutils",
}  # fmt: skip
_UNUSED_PARTS = ("test", "tests")
_UNUSED_MODULES = ("_tkinter", "_test")
_LIBRARY = re.compile(r"^\s+(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_LDD = "/usr/bin/ldd"
_LDD_S = 60.0
_PASSWD = b"root:x:0:0:root:/root:/none\nnobody:x:65534:65534:nobody:/:/none\n"
_GROUP = b"root:x:0:\nnogroup:x:65534:\n"
ENV = (
    "PATH=/usr/local/bin:/usr/bin:/bin",
    f"PYTHONPATH={APP}:{SITE}",
    "PYTHONUNBUFFERED=1",
    "PYTHONDONTWRITEBYTECODE=1",
)


def build(
    target: Path,
    name: str,
    *,
    distributions: Sequence[str] = (PROJECT, "numpy"),
    files: Mapping[str, Path | bytes] | None = None,
    others: Sequence[Path] = (),
    programs: Sequence[str] = (),
) -> Path:
    """Writes an image whose containers run `python` with the pod's `args`.

    Args:
        target: The tar file, for `running(images=...)`.
        name: What pods call it, such as "edl.local/trainer:1".
        distributions: Taken over with all they require, as far as they are installed here.
        files: More of them, by their path in the image, such as {"/app/train.py": b"..."}.
        others: `site-packages` of environments of the same Python, with what is not installed here.
        programs: Of this machine, such as "sh", which come with the libraries they need.

    Raises:
        OSError: a file cannot be read, a program is not here, or the disk is full.
        PackageNotFoundError: one of `distributions` is not installed.
    """
    layers = [base(distributions, others, programs), own(files or {})]
    return write(target, name, layers, ContainerSettings((PYTHON,), ENV, APP))


def base(
    distributions: Sequence[str], others: Sequence[Path] = (), programs: Sequence[str] = ()
) -> list[Entry]:
    """All but the project: the interpreter, its library, `distributions` and what they need."""
    entries = [*_system(), *_interpreter(), *_packages(distributions, others)]
    entries += [Entry(f"/bin/{name}", _program(name), mode=0o755) for name in programs]
    # The loader among them is a program.
    return entries + [Entry(path, file, mode=0o755) for path, file in _libraries(entries).items()]


def own(files: Mapping[str, Path | bytes]) -> list[Entry]:
    """The project as it is now, and `files`."""
    return [*project_packages(), *(Entry(path, content) for path, content in files.items())]


def _system() -> Iterator[Entry]:
    yield Entry("/etc/passwd", _PASSWD)
    yield Entry("/etc/group", _GROUP)
    yield Entry("/tmp", mode=0o1777)  # noqa: S108 - the image's, not ours
    yield Entry("/root", mode=0o755)


def _interpreter() -> Iterator[Entry]:
    binary = Path(sys.executable).resolve()
    yield Entry(str(binary), binary, mode=0o755)
    for link in (PYTHON, "/usr/bin/python3"):
        yield Entry(link, link=str(binary))
    for key in ("stdlib", "platstdlib"):
        place = Path(sysconfig.get_path(key, vars={"base": sys.base_prefix}))
        for path in place.iterdir():
            if path.name not in _UNUSED and not path.name.startswith("config-"):
                yield from _tree(path, str(path))


def _program(name: str) -> Path:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name}: this machine has no such program")
    return Path(path).resolve()


def _tree(source: Path, target: str) -> Iterator[Entry]:
    """A file, or all files of a directory but what is for tests or graphics."""
    if source.is_file():
        yield Entry(target, source)
    elif source.is_dir():
        for path in source.iterdir():
            if path.name not in _UNUSED_PARTS and not path.name.startswith(_UNUSED_MODULES):
                yield from _tree(path, f"{target}/{path.name}")


def _packages(names: Sequence[str], others: Sequence[Path]) -> Iterator[Entry]:
    for distribution in _closure(names, [*sys.path, *map(str, others)]):
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            inside = ".." not in file.parts and "tests" not in file.parts
            if inside and source.is_file() and not file.name.startswith("__editable__"):
                yield Entry(f"{SITE}/{file}", source)


def _closure(names: Sequence[str], places: Sequence[str]) -> list[Distribution]:
    """The distributions and all that they require, each as the first of the places has it."""
    distributions: dict[str, Distribution] = {}
    if missing := [name for name in names if not _installed(name, places)]:
        raise PackageNotFoundError(", ".join(missing))
    waiting = [distribution for name in names for distribution in _installed(name, places)]
    while waiting:
        distribution = waiting.pop()
        if distribution.name in distributions:
            continue
        distributions[distribution.name] = distribution
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting += _installed(requirement.name, places)
    return list(distributions.values())


def _installed(name: str, places: Sequence[str]) -> list[Distribution]:
    return list(Distribution.discover(name=name, path=list(places)))[:1]


def _libraries(entries: Sequence[Entry]) -> dict[str, Path]:
    """The shared libraries that those among the entries need and that are not among them."""
    binaries = {
        str(entry.content)
        for entry in entries
        if isinstance(entry.content, Path) and (entry.mode & 0o111 or ".so" in entry.path)
    }
    done = subprocess.run(
        [_LDD, *sorted(binaries)], capture_output=True, text=True, timeout=_LDD_S, check=False
    )
    libraries = {path for path in _LIBRARY.findall(done.stdout) if path not in binaries}
    return {path: Path(path) for path in libraries if "site-packages" not in path}


def project_packages(root: Path = ROOT) -> Iterator[Entry]:
    """The packages of this tree or another, as they are now, and the SDK."""
    for init in [*root.glob("*/__init__.py"), *(root / "sdk" / "src").glob("*/__init__.py")]:
        package = init.parent
        if package.name not in ("tests", "e2e", "bench"):
            for path in package.rglob("*.py"):
                yield Entry(f"{APP}/{package.name}/{path.relative_to(package)}", path)
