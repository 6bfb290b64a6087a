"""What is in EDL's image: the packages that its servers need, pinned, and nothing else."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench import sbom

ROOT = Path(__file__).parents[2]
_PIN = re.compile(r"^([a-z0-9-]+)(?:\[[a-z0-9,-]+\])?(==[^\s\\]+)", re.MULTILINE)


def _pins(lock: str) -> set[str]:
    return {name + version for name, version in _PIN.findall((ROOT / lock).read_text())}


def _needed(names: Iterable[str]) -> set[str]:
    """The packages of this platform that these need, themselves included."""
    needed: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        needed.add(name)
        for text in requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting |= {canonicalize_name(requirement.name)} - needed
    return needed


def test_the_image_has_what_its_servers_need_and_no_tools() -> None:
    """It also runs beside users' trainers: no test runner, no compiler, no second JSON schema engine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = {canonicalize_name(Requirement(t).name) for t in project["dependency-groups"]["dev"]}
    wanted = {canonicalize_name(Requirement(t).name) for t in project["project"]["dependencies"]}
    names = {pin.partition("==")[0] for pin in _pins("deploy/runtime.lock")}

    needed = _needed(wanted)
    assert needed <= names
    assert not names & (tools - needed)  # Flask brings click, which kubectl edl uses too
    assert len(names) < 50


def test_a_lock_file_names_the_extras_that_its_packages_need() -> None:
    """Else pip before 23.3 takes the newest version for the extra, and refuses it as not pinned."""
    lock = (ROOT / "requirements.lock").read_text()
    pins = [Requirement(line.rstrip("\\")) for line in lock.splitlines() if line[:1].isalnum()]
    extras = {canonicalize_name(pin.name): pin.extras for pin in pins}
    needed = {
        (canonicalize_name(requirement.name), extra)
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
        for requirement in map(Requirement, requires(pin.name) or ())
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in {"", *pin.extras})
        for extra in requirement.extras
    }

    assert needed
    assert {(name, extra) for name, extra in needed if extra not in extras[name]} == set()


def test_the_image_has_the_versions_that_were_tested() -> None:
    """Each package as in the lock file of the tests, with hashes of every one."""
    for lock in ("deploy/runtime.lock", "deploy/build.lock"):
        text = (ROOT / lock).read_text()

        assert _pins(lock) <= _pins("requirements.lock")
        assert all("--hash=sha256:" in block for block in re.split(r"\n(?=[a-z])", text))


@pytest.mark.parametrize(
    ("base", "code"), [("python:3.11-slim", 1), (f"registry.example/python@sha256:{'0' * 64}", 0)]
)
def test_a_base_has_to_have_a_digest(base: str, code: int) -> None:
    """Docker runs this first, in the base itself; the line says which flag to use."""
    steps = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", "")
    first = next(line for line in steps.splitlines() if line.startswith("RUN "))
    command = ["sh", "-c", first.removeprefix("RUN ")]

    done = subprocess.run(  # noqa: S603 - a line of this repository
        command, env={"BASE": base}, capture_output=True, text=True, check=False
    )

    assert (done.returncode, f"--build-arg BASE={base}@sha256:" in done.stderr) == (code, code == 1)


def test_the_image_is_built_of_its_folders_alone() -> None:
    """`COPY . .` takes what .dockerignore lets through: each package of servers, and no key that lies around."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    find = project["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {name for name in find if "." not in name}
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] != "#"]
    paths = [line[1:] for line in lines if line.startswith("!") and "." not in line]
    folders = {path.removeprefix("sdk/src/") for path in paths} - {"LICENSE"}

    assert lines[0] == "*"
    assert folders == packages - {"cli"}  # kubectl edl, for users


def test_the_bill_of_materials_lists_every_pin(tmp_path: Path) -> None:
    """With the hashes that pip accepts, and on which platforms where that is limited."""
    file = tmp_path / "build" / "sbom.json"
    assert sbom.main([str(file)]) == 0
    document = json.loads(file.read_text())
    image, *packages = document["packages"]
    named = {f"{package['name']}=={package['versionInfo']}" for package in packages}
    contained = {
        relation["relatedSpdxElement"]
        for relation in document["relationships"]
        if relation["relationshipType"] == "CONTAINS"
    }

    assert (document["spdxVersion"], image["name"]) == ("SPDX-2.3", "edl")
    assert named == _pins("deploy/runtime.lock")
    assert all(package["checksums"] for package in packages)
    assert contained == {package["SPDXID"] for package in packages}
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name) for name in contained)
    (cffi,) = (package for package in packages if package["name"] == "cffi")
    assert cffi["comment"] == "only where platform_python_implementation != 'PyPy'"
    (purl,) = cffi["externalRefs"]
    assert purl["referenceLocator"] == f"pkg:pypi/cffi@{cffi['versionInfo']}"
