"""Packages that a card's machine without a package index lacks: gathered here, installed there.

python -m e2e.gpu.wheels   # or make gpu-wheels, before the tree goes to the card
"""

from __future__ import annotations

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
    """A wheel is missing or damaged; the message is one line."""


def gather(python: str = "3.12") -> float:
    """Downloads the wheels of the lock file; returns how many MB they have.

    Args:
        python: The version on the card's machine.

    Raises:
        WheelError: One cannot be had, or has another hash, or they are too large to take along.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
    command += [word for platform in _PLATFORMS for word in ("--platform", platform)]
    run = subprocess.run(
        [*command, "-r", str(LOCK), "-d", str(FOLDER)], capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise WheelError(
            f"the wheels cannot be gathered: {run.stderr.strip().splitlines()[-1]:.300}"
        )
    (FOLDER / COMMIT).write_text(commit_of(ROOT, FOLDER / COMMIT) + "\n", encoding="utf-8")
    megabytes = sum(path.stat().st_size for path in FOLDER.iterdir()) / 1e6
    if megabytes > MOST_MB:
        raise WheelError(
            f"the wheels have {megabytes:.0f} MB, and {MOST_MB} are the most to take along"
        )
    return megabytes


def install(site: Path) -> None:
    """Installs the wheels that were brought along, if any, into a folder, which may be there already.

    Raises:
        WheelError: They do not fit this Python.
    """
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    found = sorted(map(str, FOLDER.glob("*.whl")))
    if found:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        command += ["--no-compile", "--disable-pip-version-check", "--target", str(site), *found]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            last = run.stderr.strip().splitlines()[-1]
            raise WheelError(f"build/gpu-wheels does not fit this Python: {last:.300}")


def check_complete(missing: Sequence[str]) -> None:
    """Refuses to play without a package.

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


if __name__ == "__main__":
    try:
        print(f"{gather():.0f} MB in {FOLDER.relative_to(ROOT)}")
    except WheelError as error:
        sys.exit(f"make gpu-wheels: {error}")
