"""A copy of the tree for mutmut, in the layout that mutmut expects.

Mutmut derives the name of a mutant from its file's path, so all packages must be at the root,
which the SDK's is not. Imports find the copy before the installed packages, which refer to the
user's tree.
"""

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.mutants.rooms import PACKAGES, Room

_SDK_HOME = Path("sdk/src")
PYTEST_OPTIONS = (
    *("-p", "no:cacheprovider"),
    *("-p", "no:tests.support.leftovers"),
    *("-p", "bench.mutants.order"),
    "--timeout=0",
)
"""Runs are concurrent: they do not use a cache and do not look for leftover processes.

No test has a time-out of its own, which would count as a kill on a slow machine: mutmut ends mutants
that hang, and they are tried again with another limit of the whole.
"""
PROFILE = "--hypothesis-profile=mutants"
"""Few and fixed examples (tests/conftest.py)."""


def stage(root: Path, target: Path, room: Room) -> None:
    """Copies the user's tree for one room: tracked and new files, with uncommitted changes.

    Raises:
        LookupError: The tree is not a git checkout, or a pattern of the room matches no file.
    """
    shutil.rmtree(target, ignore_errors=True)
    for name in _files(root):
        home = name.relative_to(_SDK_HOME) if name.is_relative_to(_SDK_HOME) else name
        copy = target / home
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy)
    with (target / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(_settings(target, room))


def home(file: str) -> str:
    """The path in the user's tree of a file in a staged tree."""
    return str(_SDK_HOME / file) if file.startswith("edl/") else file


def _files(root: Path) -> list[Path]:
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    if listed.returncode:
        raise LookupError(f"a git checkout is needed: {listed.stderr.strip()}")
    names = [Path(name) for name in listed.stdout.split("\0") if name]
    return [name for name in names if (root / name).is_file()]


def _settings(target: Path, room: Room) -> str:
    """Mutmut's section of pyproject.toml; its values have the same syntax in JSON and TOML."""
    others = {entry.name for entry in target.iterdir()} - {*PACKAGES, "tests", "pyproject.toml"}
    settings = {
        "source_paths": list(PACKAGES),
        "only_mutate": _matches(target, room.sources),
        "do_not_mutate_patterns": [  # log texts and thread names are not tested
            r"^\s*log\.\w+\(",
            r'\bname="[a-z-]+", daemon=|\bname="edl-|ThreadPoolExecutor\(\d+, "',
        ],
        "also_copy": sorted(others),
        "pytest_add_cli_args_test_selection": list(room.tests),
        "pytest_add_cli_args": [
            *PYTEST_OPTIONS,
            PROFILE,
            *(f"--deselect={name}" for name in room.excluded_tests),
        ],
        "debug": True,  # the output of tests goes to the log, which shows why they fail
        "process_isolation": "forkserver",  # tests leave threads, which a fork would not copy
        "timeout_constant": 4.0,  # for tests that take milliseconds: 40 s on a machine with other load
        "timeout_multiplier": 10.0,
        "track_dependencies": False,  # only useful for a second run
        "use_git_change_detection": False,
    }
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    return "\n[tool.mutmut]\n" + "".join(lines)


def _matches(target: Path, patterns: Iterable[str]) -> list[str]:
    names = []
    for pattern in patterns:
        matches = sorted(target.glob(pattern))
        if not matches:
            raise LookupError(f"no file {pattern}")
        names += [str(match.relative_to(target)) for match in matches]
    return names
