"""Downloads the packages that the GPU machine lacks, and installs them there offline.

python -m e2e.gpu.wheels 3.12   # or make gpu-wheels, before the tree goes to the GPU machine
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.gpu.report import commit_of

ROOT = Path(__file__).parents[2]
FOLDER, LOCK = ROOT / "build/gpu-wheels", ROOT / "e2e/gpu/wheels.lock"
COMMIT = "commit.txt"
MOST_MB = 40
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 34, 28, 27, 24, 17, 12, 5)]
_PLATFORMS += ["manylinux2014_x86_64", "manylinux1_x86_64"]


class WheelError(Exception):
    """Wheels cannot be downloaded or installed; the message is one line."""


def download(python: str) -> float:
    """Downloads the wheels of the lock file; returns their size in MB.

    Args:
        python: The version on the GPU machine, such as "3.12".

    Raises:
        WheelError: A wheel cannot be downloaded, has another hash, or all exceed `MOST_MB`.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    command = ["download", "--require-hashes", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, "--implementation", "cp"]
    command += [word for platform in _PLATFORMS for word in ("--platform", platform)]
    problem = _pip(*command, "-r", str(LOCK), "-d", str(FOLDER))
    if problem:
        raise WheelError(f"the wheels for Python {python} cannot be downloaded: {problem}")
    (FOLDER / COMMIT).write_text(commit_of(ROOT, FOLDER / COMMIT) + "\n", encoding="utf-8")
    megabytes = sum(path.stat().st_size for path in FOLDER.iterdir()) / 1e6
    if megabytes > MOST_MB:
        raise WheelError(f"the wheels take {megabytes:.0f} MB; the limit is {MOST_MB} MB")
    return megabytes


def install(site: Path) -> None:
    """Installs the wheels that were brought along, if any, into a folder; replaces it.

    Raises:
        WheelError: They do not fit this Python, or are damaged.
    """
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    found = sorted(map(str, FOLDER.glob("*.whl")))
    if not found:
        return
    problem = _pip("install", "--no-index", "--no-deps", "--target", str(site), *found)
    if problem:
        version = ".".join(platform.python_version_tuple()[:2])
        raise WheelError(
            f"build/gpu-wheels cannot be installed ({problem}): make gpu-wheels FOR={version} downloads "
            "the wheels for this Python"
        )


def check_complete(missing: Sequence[str]) -> None:
    """Refuses to run without a package.

    Args:
        missing: Modules that cannot be imported.

    Raises:
        WheelError: There are some.
    """
    if missing:
        raise WheelError(
            f"{', '.join(missing)} cannot be imported: call make gpu-wheels on a machine with a package "
            "index, and copy build/gpu-wheels to this one"
        )


def _pip(*words: str) -> str:
    """Calls pip; returns the last line of its error, or "" if it succeeds."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stderr.strip().splitlines()[-1][:300] if run.returncode else ""


if __name__ == "__main__":
    try:
        print(f"{download(sys.argv[1]):.0f} MB in {FOLDER.relative_to(ROOT)}")
    except WheelError as error:
        sys.exit(f"make gpu-wheels: {error}")
