import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import identity
from e2e.cluster.__main__ import main
from e2e.cluster.build import built
from e2e.cluster.run import Component, RunDirectory, SupervisorState
from e2e.cluster.toolchain import PACKAGES
from runtime.certs import new_ca
from runtime.clock import epoch_s, now


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of our own."""
    monkeypatch.setenv("EDL_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("command", ["status", "kubeconfig"])
def test_without_a_cluster_the_way_to_one_is_named(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and one line."""
    assert main([command]) == 1
    assert capsys.readouterr().err == (
        "error: no cluster runs; start one with `python -m e2e.cluster up`\n"
    )


def test_down_without_a_cluster_is_no_error(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what it found; a stale state is cleared."""
    assert main(["down"]) == 0
    (cache / "run" / "state.json").write_text("{}")
    assert main(["status"]) == 1
    assert main(["down"]) == 0
    assert main(["down"]) == 0
    output = capsys.readouterr()

    assert output.out.splitlines() == [
        "no cluster runs",
        "no cluster runs; cleared the state of one that ended without `down`",
        "no cluster runs",
    ]
    assert "ended without `down`" in output.err


def test_build_names_what_is_there(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is built again; the directory is printed."""
    binaries = built(cache)
    binaries.directory.mkdir(parents=True)
    for name in PACKAGES:
        binaries.path(name).write_text("")

    assert main(["build"]) == 0
    assert capsys.readouterr().out == f"{binaries.directory}\n"


@pytest.mark.parametrize("words", [["build", "--real-nodes"], ["up", "--real-nodes", "2"]])
def test_real_nodes_are_refused_before_anything_is_built(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where they cannot be, one line says why."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert main(words) == 1
    assert capsys.readouterr().err.startswith("error: no real nodes here: they need ")


def test_a_supervisor_that_fails_is_quoted(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster that does not start: the component's last words, and where the log is."""
    binaries = built(cache)
    binaries.directory.mkdir(parents=True)
    for name in PACKAGES:
        binaries.path(name).write_text("#!/bin/sh\necho out of memory\nexit 4\n")
        binaries.path(name).chmod(0o755)

    assert main(["up", "--nodes", "1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: etcd ended with exit code 4: out of memory (whole log: ")
    assert error.count("\n") == 1


def test_a_cache_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, no traceback, and the variable that helps."""
    monkeypatch.setenv("EDL_CACHE", "/dev/null/edl")

    assert main(["up"]) == 1
    error = capsys.readouterr().err
    assert "/dev/null/edl" in error
    assert "EDL_CACHE" in error


@pytest.mark.parametrize("words", [["up", "--nodes", "many"], [], ["fly"]])
def test_wrong_words_are_explained(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and the usage, as every argparse program."""
    with pytest.raises(SystemExit) as error:
        main(words)

    assert error.value.code == 2
    assert "usage: python -m e2e.cluster" in capsys.readouterr().err


@pytest.fixture
def place(cache: Path) -> Iterator[RunDirectory]:
    """Where a supervisor (here this process) holds the lock."""
    run_place = RunDirectory(cache / "run")
    descriptor = run_place.hold()
    assert descriptor is not None
    yield run_place
    os.close(descriptor)


@pytest.fixture
def state(place: RunDirectory, tmp_path: Path) -> SupervisorState:
    """A cluster that runs, but for its API server."""
    ca = new_ca("test", now())
    leaf = identity.client(ca, "admin", (), now())
    url = "https://127.0.0.1:9"
    kubeconfig = tmp_path / "admin"
    kubeconfig.write_text(identity.kubeconfig(url, ca.cert, "admin", leaf))
    cluster_state = SupervisorState(
        supervisor=os.getpid(),
        started_s=epoch_s() - 3700,
        url=url,
        kubeconfig=str(kubeconfig),
        kubectl="/b/kubectl",
        version="v1.36.3",
        components=(Component("etcd", 12, 34, None), Component("kube-apiserver", 56, 78, 137)),
    )
    place.write(cluster_state)
    return cluster_state


@pytest.mark.usefixtures("state")
def test_status_shows_what_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """Each process with id, port and life; nodes are unknown without an API server."""
    assert main(["status"]) == 0
    output = capsys.readouterr().out
    assert "etcd" in output
    assert "ended with exit code 137" in output
    assert "up for 1 h 1 min, nodes unknown (" in output


def test_a_second_up_finds_the_first(
    state: SupervisorState, capsys: pytest.CaptureFixture[str]
) -> None:
    """It starts nothing and says how to use what runs."""
    assert main(["up"]) == 0
    output = capsys.readouterr().out
    assert f"it runs already: {state.url}" in output
    assert f"export KUBECONFIG={state.kubeconfig}" in output
    assert main(["kubeconfig"]) == 0
    assert capsys.readouterr().out == f"{state.kubeconfig}\n"


@pytest.mark.usefixtures("place")
def test_a_start_under_way_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The lock is held, but there is no state yet."""
    assert main(["status"]) == 1
    assert "just starting" in capsys.readouterr().err
