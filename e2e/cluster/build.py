"""Builds Kubernetes, etcd and kwok from the Go modules pinned in `tools/`, once per recipe.

The binaries (see `toolchain.py`; about 420 MB, and 220 MB for real nodes) go to a cache outside of the
repository, into a directory named after all inputs of the build. A build is all or nothing: it happens
in a directory beside it, which is renamed at the end; a file lock keeps a second caller waiting.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import golang
from e2e.cluster.command import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import BuildState, Display, display
from e2e.cluster.toolchain import CONTROL_PLANE, PACKAGES, Toolchain, recipe

NEEDED_BYTES = 6 << 30
"""Go's caches grow to about 4 GB meanwhile, and the binaries are there twice for a moment."""

_WAIT_S = 1.0
_BINARY_S = 3600.0  # one binary, on a slow machine with a slow network


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with all binaries of a recipe."""

    directory: Path
    names: tuple[str, ...] = tuple(PACKAGES)

    def path(self, name: str) -> Path:
        """Path of a binary."""
        return self.directory / name

    @property
    def complete(self) -> bool:
        """Whether all are there."""
        return all(self.path(name).is_file() for name in self.names)


def cache_root(environment: Mapping[str, str]) -> Path:
    """$EDL_CACHE, or the user's cache directory."""
    if own := environment.get("EDL_CACHE"):
        return Path(own).expanduser().resolve()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "edl"


def built(cache: Path, kit: Toolchain = CONTROL_PLANE) -> Binaries:
    """Where this tree's binaries are, or would be."""
    return Binaries(cache / kit.folder / recipe(kit).key, tuple(kit.packages))


def ensure(cache: Path, shown: Display | None = None, kit: Toolchain = CONTROL_PLANE) -> Binaries:
    """Returns the binaries; builds them if they are not there (about 7 minutes on two cores).

    Args:
        cache: From `cache_root`.
        shown: Where progress goes; None means standard error.
        kit: Which ones.

    Raises:
        ClusterError: no Go, no space, or the build failed.
    """
    binaries = built(cache, kit)
    if binaries.complete:
        return binaries
    binaries.directory.parent.mkdir(parents=True, exist_ok=True)
    with shown or display() as view, _alone(binaries, view):
        if not binaries.complete:
            check_space(shutil.disk_usage(cache).free, cache)
            go = golang.find(cache, golang.needed(recipe(kit).go_mod), view)
            _build(go, kit, binaries, view)
    return binaries


def check_space(free_bytes: int, place: Path) -> None:
    """Checks that there is enough disk space for a build.

    Raises:
        ClusterError: less than `NEEDED_BYTES`.
    """
    if free_bytes < NEEDED_BYTES:
        raise ClusterError(
            f"{free_bytes / (1 << 30):.1f} GB free at {place}, building Kubernetes needs "
            f"{NEEDED_BYTES >> 30} GB; make room, or set EDL_CACHE to a larger disk"
        )


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Environment of `go`: static binaries, no rewritten modules, no downloaded toolchain."""
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    return {**base, **fixed, "GOWORK": "off"}


@contextmanager
def _alone(binaries: Binaries, view: Display) -> Iterator[None]:
    lock = binaries.directory.with_name(f".{binaries.directory.name}.lock")
    with lock.open("w") as stream:
        waiting = BuildState(activity="waiting for another process that builds the same")
        while not _locked(stream.fileno()):
            view.show(waiting)
            time.sleep(_WAIT_S)
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _build(go: golang.Go, kit: Toolchain, binaries: Binaries, view: Display) -> None:
    target = binaries.directory
    partial = target.with_name(f"{target.name}.partial")
    log = target.with_name(f"{target.name}.log")
    log.unlink(missing_ok=True)
    view.say(f"building {kit.title} {recipe(kit).version} with {go.description}")
    view.say(f"this happens once, takes {kit.takes} on two cores, and goes to {target}")
    shutil.rmtree(partial, ignore_errors=True)  # of a build that was killed
    try:
        _build_all(str(go.binary), kit, partial, log, view)
        shutil.rmtree(target, ignore_errors=True)  # there, but not complete
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    view.say(f"built {len(kit.packages)} binaries")


def _build_all(go: str, kit: Toolchain, partial: Path, log: Path, view: Display) -> None:
    env = environment(os.environ)
    state = BuildState("list of Go packages")
    count = 0
    tags = ["-tags", kit.tags] if kit.tags else []
    for module, packages in kit.modules.items():
        names = [*packages.values()]
        state.title = "list of Go packages"
        listing = [go, "list", "-deps", *tags, *names]
        run(listing, log, state, view, env=env, cwd=module, timeout_s=_BINARY_S)
        for name, package in packages.items():
            count += 1
            state.begin(f"{name} ({count} of {len(kit.packages)})", package)
            command = [go, "build", "-v", *recipe(kit).flags, "-o", str(partial / name), package]
            run(command, log, state, view, env=env, cwd=module, timeout_s=_BINARY_S)
