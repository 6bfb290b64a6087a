"""A copy of the tree in which mutmut may write as it likes, laid out as mutmut expects it.

Mutmut names a mutant by the path of its file, so every package has to lie at the root, where the
SDK's does not. Imports find the copy before the installed packages, which point at the user's tree.
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
    "--timeout=60",
)
"""Many runs at once: none keeps a cache, none looks for processes that others have started.

Mutants do hang, so a test ends sooner than usual; none takes a sixth of that on a quiet machine.
"""
PROFILE = "--hypothesis-profile=mutants"
"""Few examples, always the same (tests/conftest.py)."""


def stage(root: Path, target: Path, room: Room) -> None:
    """Copies what git knows of the user's tree, changes included, for one room.

    Raises:
        LookupError: The tree is no git checkout, or a pattern of the room names no file.
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
    """Where a file of a staged tree lies in the user's."""
    return str(_SDK_HOME / file) if file.startswith("edl/") else file


def _files(root: Path) -> list[Path]:
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    if listed.returncode:
        raise LookupError(f"a git checkout is needed: {listed.stderr.strip()}")
    names = [Path(name) for name in listed.stdout.split("\0") if name]
    return [name for name in names if (root / name).is_file()]


def _settings(target: Path, room: Room) -> str:
    """The section of mutmut in pyproject.toml; TOML writes strings, numbers and lists as JSON does."""
    others = {each.name for each in target.iterdir()} - {*PACKAGES, "tests", "pyproject.toml"}
    settings = {
        "source_paths": list(PACKAGES),
        "only_mutate": _matches(target, room.sources),
        "do_not_mutate_patterns": [  # what a log says and a thread is called is for people
            r"^\s*log\.\w+\(",
            r'\bname="[a-z-]+", daemon=|\bname="edl-',
        ],
        "also_copy": sorted(others),
        "pytest_add_cli_args_test_selection": list(room.tests),
        "pytest_add_cli_args": [
            *PYTEST_OPTIONS,
            PROFILE,
            *(f"--deselect={name}" for name in room.excluded_tests),
        ],
        "debug": True,  # what tests print goes to the log, or nobody learns why they fail
        "process_isolation": "forkserver",  # tests leave threads, which a fork would not have
        "timeout_constant": 6.0,  # for tests of milliseconds, on a machine that does other work too
        "timeout_multiplier": 5.0,
        "track_dependencies": False,  # of use for a second run only
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
