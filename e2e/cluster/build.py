"""Builds Kubernetes, etcd and kwok from the Go modules pinned in `tools/`, once per recipe.

The binaries (about 420 MB) go to a cache outside of the repository, into a directory named
after everything that decides what they are. A build is all or nothing: it happens in a
directory beside and is renamed at the end; a file lock keeps a second caller waiting.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import golang
from e2e.cluster.command import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Display, State, display

TOOLS = Path(__file__).with_name("tools")
PACKAGES: Mapping[str, str] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
"""Binary -> main package; the small ones first, so that a broken set-up shows early."""

NEEDED_BYTES = 6 << 30
"""Go's caches grow to about 4 GB meanwhile, and the binaries are there twice for a moment."""

_WAIT_S = 1.0
_BINARY_S = 3600.0  # one binary, on a slow machine with a slow network
_PINNED = re.compile(r"^\s*([\w./-]+) (v[\w.+-]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what the binaries are."""

    go_mod: str
    go_sum: str
    platform: str

    @property
    def versions(self) -> dict[str, str]:
        """Module -> version of the modules that go.mod asks for itself."""
        return {match[1]: match[2] for match in _PINNED.finditer(self.go_mod)}

    @property
    def kubernetes(self) -> str:
        """Such as "v1.36.3"."""
        return self.versions["k8s.io/kubernetes"]

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments of `go build`; without the version clients would be told v0.0.0."""
        major, minor, _ = self.kubernetes.removeprefix("v").split(".", 2)
        names = {
            "k8s.io/component-base/version.gitVersion": self.kubernetes,
            "k8s.io/component-base/version.gitMajor": major,
            "k8s.io/component-base/version.gitMinor": minor,
            "k8s.io/client-go/pkg/version.gitVersion": self.kubernetes,
        }
        defines = " ".join(f"-X {name}={value}" for name, value in names.items())
        return ("-trimpath", "-ldflags", f"-s -w {defines}")

    @property
    def key(self) -> str:
        """Names the build: the Kubernetes version and a hash of all the rest."""
        parts = (self.go_mod, self.go_sum, self.platform, *self.flags, *PACKAGES.values())
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"{self.kubernetes}-{digest[:12]}"


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with all binaries of a recipe."""

    directory: Path

    def path(self, name: str) -> Path:
        """The binary's."""
        return self.directory / name

    @property
    def complete(self) -> bool:
        """Whether all are there."""
        return all(self.path(name).is_file() for name in PACKAGES)


def cache_root(environment: Mapping[str, str]) -> Path:
    """$EDL_CACHE, or the user's cache directory."""
    if own := environment.get("EDL_CACHE"):
        return Path(own).expanduser().resolve()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "edl"


def recipe() -> Recipe:
    """The one of this source tree and machine."""
    return Recipe(
        go_mod=(TOOLS / "go.mod").read_text(),
        go_sum=(TOOLS / "go.sum").read_text(),
        platform=f"{platform.system()}/{platform.machine()}",
    )


def built(cache: Path) -> Binaries:
    """Where this tree's binaries are, or would be."""
    return Binaries(cache / "kubernetes" / recipe().key)


def ensure(cache: Path, shown: Display | None = None) -> Binaries:
    """The binaries; builds them if they are not there (about 7 minutes on two cores).

    Args:
        cache: From `cache_root`.
        shown: Where progress goes; None means standard error.

    Raises:
        ClusterError: no Go, no space, or the build failed.
    """
    binaries = built(cache)
    if binaries.complete:
        return binaries
    binaries.directory.parent.mkdir(parents=True, exist_ok=True)
    with shown or display() as view, _alone(binaries, view):
        if not binaries.complete:
            check_space(shutil.disk_usage(cache).free, cache)
            go = golang.find(cache, golang.needed(recipe().go_mod), view)
            _build(go, binaries, view)
    return binaries


def check_space(free_bytes: int, place: Path) -> None:
    """Refuses to begin what cannot end.

    Raises:
        ClusterError: less than `NEEDED_BYTES`.
    """
    if free_bytes < NEEDED_BYTES:
        raise ClusterError(
            f"{free_bytes / (1 << 30):.1f} GB free at {place}, building Kubernetes needs "
            f"{NEEDED_BYTES >> 30} GB; make room, or set EDL_CACHE to a larger disk"
        )


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """What `go` is run with: static binaries, nothing rewritten, no other toolchain fetched."""
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    return {**base, **fixed, "GOWORK": "off"}


@contextmanager
def _alone(binaries: Binaries, view: Display) -> Iterator[None]:
    lock = binaries.directory.with_name(f".{binaries.directory.name}.lock")
    with lock.open("w") as stream:
        waiting = State(activity="waiting for another process that builds the same")
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


def _build(go: golang.Go, binaries: Binaries, view: Display) -> None:
    target = binaries.directory
    partial = target.with_name(f"{target.name}.partial")
    log = target.with_name(f"{target.name}.log")
    log.unlink(missing_ok=True)
    view.say(f"building Kubernetes {recipe().kubernetes} with {go.found}")
    view.say(f"this happens once, takes 5 to 10 minutes on two cores, and goes to {target}")
    shutil.rmtree(partial, ignore_errors=True)  # of a build that was killed
    try:
        _build_all(str(go.binary), partial, log, view)
        shutil.rmtree(target, ignore_errors=True)  # there, but not complete
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    view.say(f"built {len(PACKAGES)} binaries")


def _build_all(go: str, partial: Path, log: Path, view: Display) -> None:
    env = environment(os.environ)
    state = State("list of Go packages")
    run([go, "list", "-deps", "tool"], log, state, view, env=env, cwd=TOOLS, timeout_s=_BINARY_S)
    for number, (name, package) in enumerate(PACKAGES.items(), start=1):
        state.begin(f"{name} ({number} of {len(PACKAGES)})", package)
        command = [go, "build", "-v", *recipe().flags, "-o", str(partial / name), package]
        run(command, log, state, view, env=env, cwd=TOOLS, timeout_s=_BINARY_S)
