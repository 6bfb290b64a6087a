import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster.build import Binaries
from e2e.cluster.components import SchedulerOptions
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import Cluster, Options, running
from e2e.cluster.toolchain import PACKAGES

Maker = Callable[[str], Binaries]


@pytest.fixture
def binaries(tmp_path: Path) -> Maker:
    """Makes binaries that are all the same shell script."""

    def make(script: str) -> Binaries:
        built = Binaries(tmp_path / "bin")
        built.directory.mkdir()
        for name in PACKAGES:
            built.path(name).write_text(f"#!/bin/sh\n{script}\n")
            built.path(name).chmod(0o755)
        return built

    return make


def test_a_component_that_dies_is_quoted(tmp_path: Path, binaries: Maker) -> None:
    """The error names it, its exit code, its last words and its log; nothing is left running."""
    fake_binaries = binaries("echo cannot read the flags; exit 3")

    with (
        pytest.raises(ClusterError, match=r"^etcd ended with exit code 3: cannot read .*etcd\.log"),
        running(tmp_path / "cluster", binaries=fake_binaries),
    ):
        pass


def test_a_taken_port_is_tried_once_more(tmp_path: Path, binaries: Maker) -> None:
    """With other ports; the second collision is an error."""
    tries = tmp_path / "tries"
    fake_binaries = binaries(f'echo "$*" >> {tries}; echo bind: address already in use; exit 1')

    with (
        pytest.raises(ClusterError, match="address already in use"),
        running(tmp_path / "cluster", binaries=fake_binaries),
    ):
        pass
    first, second = tries.read_text().splitlines()
    assert first != second


def test_files_are_written_before_anything_runs(tmp_path: Path, binaries: Maker) -> None:
    """Keys and kubeconfigs are the owner's alone; the scheduler's options are in its file."""
    options = Options(SchedulerOptions({"percentageOfNodesToScore": 100}), stop_time_ms=3000)
    cluster = Cluster(binaries("exit 0"), tmp_path / "cluster", options)
    user = cluster.kubeconfig("system:serviceaccount:edl-system:edl-webhook", ("more",))
    config = json.loads((tmp_path / "cluster" / "config" / "kube-scheduler.yaml").read_text())

    assert config["percentageOfNodesToScore"] == 100
    assert "3000ms" in (tmp_path / "cluster" / "config" / "kwok.yaml").read_text()
    for secret in (cluster.admin, user, *(tmp_path / "cluster" / "pki").glob("*.key")):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert json.loads(user.read_text())["clusters"][0]["cluster"]["server"] == cluster.url
    assert cluster.kubectl == tmp_path / "bin" / "kubectl"
    cluster.down()


def test_components_that_do_not_run_are_named(tmp_path: Path, binaries: Maker) -> None:
    """Wrong names are answered with the right ones."""
    cluster = Cluster(binaries("exec sleep 60"), tmp_path / "cluster", Options())

    with pytest.raises(ClusterError, match="no component 'etcd' runs; there are: none"):
        cluster.pid("etcd")
    with pytest.raises(ClusterError, match="no component 'kubelet'; there are: etcd, kube-api"):
        cluster.start("kubelet")
    cluster.down()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_failed_start_leaves_nothing(tmp_path: Path, binaries: Maker) -> None:
    """A component that runs is stopped when the next one fails."""
    fake_binaries = binaries("exit 9")
    pid_file = tmp_path / "pid"
    server = (
        f"echo $$ > {pid_file}; "
        'port=$(echo "$*" | sed "s/.*listen-client-urls=http:..127.0.0.1:\\([0-9]*\\).*/\\1/"); '
        f"exec {sys.executable} -c 'import http.server as h, sys;"
        "h.BaseHTTPRequestHandler.do_GET = lambda s: (s.send_response(200), s.end_headers());"
        'h.HTTPServer(("127.0.0.1", int(sys.argv[1])), h.BaseHTTPRequestHandler).serve_forever()\''
        " $port"
    )
    fake_binaries.path("etcd").write_text(f"#!/bin/sh\n{server}\n")

    with (
        pytest.raises(ClusterError, match=r"^kube-apiserver ended with exit code 9"),
        running(tmp_path / "cluster", binaries=fake_binaries),
    ):
        pass
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
