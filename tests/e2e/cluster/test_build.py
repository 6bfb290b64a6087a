import dataclasses
import io
import os
import shutil
import threading
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console

from e2e.cluster import build, toolchain
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import PlainProgress

FAKE_GO = """#!/bin/sh
case "$1" in
version) echo "go version go1.26.8 linux/amd64" ;;
list) echo "go: downloading k8s.io/api v0.36.3" >&2; echo fmt; echo k8s.io/api/core/v1 ;;
build)
    echo "$CGO_ENABLED $GOFLAGS $GOTOOLCHAIN $*" >> "$FAKE_GO_CALLS"
    for last; do :; done
    if [ -n "$FAKE_GO_BROKEN" ]; then echo "main.go:1: does not compile"; exit 2; fi
    echo "$last"
    while [ "$1" != -o ]; do shift; done
    mkdir -p "$(dirname "$2")" && echo binary > "$2" ;;
esac
"""


class Usage(NamedTuple):
    """As `shutil.disk_usage` answers."""

    total: int
    used: int
    free: int


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` on PATH that writes down how it is called, and room on the disk."""
    program = tmp_path / "bin" / "go"
    program.parent.mkdir()
    program.write_text(FAKE_GO)
    program.chmod(0o755)
    record = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GO_CALLS", str(record))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 0, 1 << 40))
    return record


def shown() -> tuple[PlainProgress, io.StringIO]:
    """Progress without a terminal, and what it prints."""
    output = io.StringIO()
    return PlainProgress(Console(file=output, width=200)), output


def test_the_key_changes_with_everything_that_matters() -> None:
    """Another go.mod, go.sum or machine is another build; the key names Kubernetes' version."""
    recipe = toolchain.recipe()
    others = [
        dataclasses.replace(recipe, go_mod=recipe.go_mod.replace("v3.6.16", "v3.6.17")),
        dataclasses.replace(recipe, go_sum=recipe.go_sum + "\n"),
        dataclasses.replace(recipe, platform="Linux/riscv64"),
    ]

    assert recipe.key.startswith("v1.36.3-")
    assert len({recipe.key, *(other.key for other in others)}) == 4
    assert recipe.key == toolchain.recipe().key


def test_versions_are_those_that_go_mod_pins() -> None:
    """The three modules asked for, and none of those that come with them."""
    versions = toolchain.recipe().versions

    assert versions == {
        "go.etcd.io/etcd/server/v3": "v3.6.16",
        "k8s.io/kubernetes": "v1.36.3",
        "sigs.k8s.io/kwok": "v0.8.0",
    }


def test_every_staging_module_is_pinned() -> None:
    """Kubernetes requires its own staging modules at v0.0.0, which does not exist."""
    text = toolchain.recipe().go_mod
    required = {
        line.split()[0]
        for line in text.splitlines()
        if " v0.0.0 " in line or line.endswith(" v0.0.0")
    }
    replaced = {line.split()[0] for line in text.splitlines() if "=>" in line}

    assert required
    assert required <= replaced


def test_every_binary_is_a_tool_of_the_module() -> None:
    """So that go.mod and go.sum hold all that the build needs."""
    tools = toolchain.recipe().go_mod.partition("tool (")[2]

    assert set(toolchain.PACKAGES.values()) == set(tools.strip(" )\n").split())


@pytest.mark.parametrize("minor", toolchain.KUBERNETES)
def test_each_version_of_kubernetes_is_pinned_whole(minor: str) -> None:
    """With its staging modules and its binaries; etcd and kwok are the same for all."""
    kit = toolchain.KUBERNETES[minor]
    *around, module = kit.modules
    text = (module / "go.mod").read_text()
    tools = text.partition("tool (")[2].strip(" )\n").split()
    staging = f"v0.{toolchain.recipe(kit).kubernetes.removeprefix('v1.')}"
    replaced = [line.split() for line in text.splitlines() if "=>" in line]

    assert toolchain.recipe(kit).kubernetes.startswith(f"v{minor}.")
    assert set(kit.packages) == set(toolchain.PACKAGES)
    assert set(kit.modules[module].values()) <= set(tools)
    assert around in ([], [toolchain.TOOLS])
    assert replaced
    assert {words[-1] for words in replaced if words[0].startswith("k8s.io/")} == {staging}


def test_nodes_are_built_from_modules_of_their_own() -> None:
    """Their tools too; the control plane's key knows nothing of them, nor they of it."""
    for module, packages in toolchain.NODE.modules.items():
        tools = (module / "go.mod").read_text().partition("tool (")[2].strip(" )\n").split()
        assert set(tools) | {"./pause"} >= set(packages.values())
    node_recipe = toolchain.recipe(toolchain.NODE)

    assert node_recipe.kubernetes == toolchain.recipe().kubernetes
    assert node_recipe.versions["github.com/containerd/containerd/v2"].startswith("v2.")
    assert "no_btrfs" in node_recipe.flags[node_recipe.flags.index("-tags") + 1]
    assert node_recipe.key != toolchain.recipe().key
    changed = dataclasses.replace(node_recipe, tags="other")
    assert changed.key != node_recipe.key


def test_karpenter_is_built_from_a_module_of_its_own() -> None:
    """It needs other versions of Kubernetes' modules; its own version names the build."""
    karpenter = toolchain.recipe(toolchain.KARPENTER)

    assert karpenter.version == karpenter.versions["sigs.k8s.io/karpenter"]
    assert karpenter.key.startswith(karpenter.version)


def test_prometheus_is_built_from_a_module_of_its_own(calls: Path, tmp_path: Path) -> None:
    """Without service discovery of clouds, also where its packages are listed."""
    view, _ = shown()
    binaries = build.ensure(tmp_path / "cache", view, toolchain.PROMETHEUS)
    recipe = toolchain.recipe(toolchain.PROMETHEUS)

    assert recipe.version == recipe.versions["github.com/prometheus/prometheus"]
    assert "-tags remove_all_sd" in calls.read_text()
    assert {path.name for path in binaries.directory.iterdir()} == {"prometheus", "promtool"}


def test_a_kit_goes_to_a_folder_of_its_own(calls: Path, tmp_path: Path) -> None:
    """All binaries of all its modules, and nothing else."""
    view, output = shown()
    binaries = build.ensure(tmp_path / "cache", view, toolchain.NODE)

    assert binaries.complete
    assert binaries == build.built(tmp_path / "cache", toolchain.NODE)
    assert binaries.directory.parent == tmp_path / "cache" / "nodes"
    assert {path.name for path in binaries.directory.iterdir()} == set(toolchain.NODE.packages)
    assert "building real nodes for Kubernetes v1.36.3" in output.getvalue()
    assert len(calls.read_text().splitlines()) == len(toolchain.NODE.packages)


def test_the_version_is_linked_in() -> None:
    """Without it clients are told v0.0.0."""
    assert "version.gitVersion=v1.36.3 " in toolchain.recipe().flags[-1]
    assert "version.gitMinor=36 " in toolchain.recipe().flags[-1]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"EDL_CACHE": "/cache/edl"}, "/cache/edl"),
        ({"EDL_CACHE": "", "XDG_CACHE_HOME": "/xdg"}, "/xdg/edl"),
        ({}, str(Path("~/.cache/edl").expanduser())),
    ],
)
def test_the_cache_is_the_users(environment: dict[str, str], expected: str) -> None:
    """EDL_CACHE first, then XDG_CACHE_HOME, then ~/.cache."""
    assert build.cache_root(environment) == Path(expected).resolve()


def test_a_full_disk_is_refused_before_the_build() -> None:
    """The message says how much there is, how much it takes and what to do."""
    with pytest.raises(ClusterError, match=r"1\.0 GB free at /c, .* needs 6 GB; .* EDL_CACHE"):
        build.check_space(1 << 30, Path("/c"))
    build.check_space(build.NEEDED_BYTES, Path("/c"))


def test_a_build_makes_all_binaries_once(calls: Path, tmp_path: Path) -> None:
    """Each binary is built with the pinned settings; the second call builds nothing."""
    view, output = shown()
    binaries = build.ensure(tmp_path / "cache", view)

    assert binaries.complete
    assert binaries.directory.name == toolchain.recipe().key
    lines = calls.read_text().splitlines()
    assert len(lines) == len(toolchain.PACKAGES)
    assert all(line.startswith("0 -mod=readonly local build -v -trimpath") for line in lines)
    assert "kubectl (6 of 6), " in output.getvalue()
    assert build.ensure(tmp_path / "cache") == binaries
    assert calls.read_text().splitlines() == lines


def test_a_failed_build_leaves_its_log_only(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error quotes the last line and names the log; nothing half built stays."""
    monkeypatch.setenv("FAKE_GO_BROKEN", "1")
    view, _ = shown()

    with pytest.raises(ClusterError, match=r"etcd \(1 of 6\) failed: main.go:1: .*log: .*\.log\)"):
        build.ensure(tmp_path / "cache", view)
    assert calls.exists()
    suffixes = {path.suffix for path in (tmp_path / "cache" / "kubernetes").iterdir()}
    assert suffixes == {".log", ".lock"}


@pytest.mark.usefixtures("calls")
def test_two_callers_build_once(tmp_path: Path) -> None:
    """The second waits for the first and uses what that built."""
    cache = tmp_path / "cache"
    binaries: list[build.Binaries] = []
    views = [shown(), shown()]
    threads = [
        threading.Thread(target=lambda view=view: binaries.append(build.ensure(cache, view)))
        for view, _ in views
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(binaries)) == 1
    built = [output for _, output in views if "built 6 binaries" in output.getvalue()]
    assert len(built) == 1
