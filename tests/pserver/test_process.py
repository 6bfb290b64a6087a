"""`python -m pserver` as a process: its usage, its signals, and its death."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pserver import startup
from pserver.__main__ import main
from pserver.settings import PserverSettings
from runtime.settings import SettingsError
from tests.pserver.processes import PserverProcess
from tests.pserver.serving import RunningServer
from tests.pserver.test_app import WHO, begin_generation, call, push_ones
from tests.support.commands import Commands, Completed
from tests.support.server_process import run_to_end

LONG = "token-of-a-job-of-tests"


def test_it_ends_with_0_on_sigterm_and_resumes(tmp_path: Path) -> None:
    """Everything that was answered is in what it saved."""
    server = PserverProcess(tmp_path)
    begin_generation(server)
    push_ones(server)
    assert server.end(signal.SIGTERM) == 0
    server.start()
    assert push_ones(server)[1].meta["outcome"] == "repeated"
    assert server.end(signal.SIGKILL) == -9


@pytest.fixture
def process(tmp_path: Path) -> Iterator[PserverProcess]:
    """A server that serves."""
    server = PserverProcess(tmp_path)
    yield server
    server.end(signal.SIGKILL)


def test_a_second_one_for_the_same_part_ends_at_once(tmp_path: Path, commands: Commands) -> None:
    """The first one serves on."""
    server = RunningServer(tmp_path)
    again = _once(commands, "--checkpoints", str(tmp_path), "--job", "digits", EDL_TOKEN=LONG)
    health = call(server, "GET", "/healthz")[0]
    server.stop()

    assert again.returncode == 1
    assert "another parameter server 0 of 1 uses" in again.stderr
    assert health == 200


@pytest.mark.soak  # `make test` has the same with threads: tests/sdk/servers/test_faults
def test_killed_it_has_its_checkpoints(process: PserverProcess) -> None:
    """Complete ones; otherwise it starts empty."""
    begin_generation(process)
    push_ones(process)
    for path in ("/v1/prepare", "/v1/commit"):
        assert call(process, "POST", path, {**WHO, "version": 1})[0] == 200
    process.end(signal.SIGKILL)
    process.start()
    state = call(process, "POST", "/v1/enter", {**WHO, "generation": 0})[1]

    assert state["ready"] is False
    assert [checkpoint["version"] for checkpoint in state["have"]] == [1]


def _once(commands: Commands, *arguments: str, **variables: str) -> Completed:
    return commands.run(main, "--listen", "127.0.0.1:0", *arguments, **variables)


def test_bad_use_is_one_line(tmp_path: Path) -> None:
    """Exit code 2, the setting, and the way out; never a traceback."""
    arguments = ("--listen", "127.0.0.1:0", "--checkpoints", str(tmp_path / "x"))
    completed = run_to_end("pserver", *arguments)

    assert completed.returncode == 2
    assert completed.stderr.startswith("pserver: EDL_TOKEN must hold the job's token")
    assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"index": "2", "of": "2"}, "--index is 2, it must be below --of, which is 2"),
        ({"job": "../x"}, "--job is '../x'"),
        ({"listen": "nowhere"}, "--listen is 'nowhere'"),
        ({"max_dense_numbers": "0"}, "--max-dense-numbers is '0'"),
        ({"max_bytes": "-1"}, "--max-bytes is '-1'"),
    ],
)
def test_settings_that_cannot_be_are_named(arguments: dict[str, str], message: str) -> None:
    """With what was given."""
    with pytest.raises(SettingsError) as caught:
        PserverSettings.read(arguments, {})

    assert message in str(caught.value)


def test_what_cannot_be_used_is_one_line(tmp_path: Path, commands: Commands) -> None:
    """Exit code 1: a folder that is none, a token file that is a folder."""
    (tmp_path / "file").write_text("")
    completed = _once(commands, "--checkpoints", str(tmp_path / "file"), EDL_TOKEN=LONG)

    assert completed.returncode == 1
    assert completed.stderr.startswith("pserver: cannot use")


def test_less_memory_than_before_is_said(tmp_path: Path, commands: Commands) -> None:
    """The stored shard exceeds the new limit."""
    server = RunningServer(tmp_path)
    begin_generation(server)
    server.stop()
    arguments = ("--checkpoints", str(tmp_path), "--job", "digits", "--max-bytes", "9")
    again = _once(commands, *arguments, EDL_TOKEN=LONG)

    assert again.returncode == 1
    assert "raise --max-bytes" in again.stderr


def test_the_memory_for_arrays_follows_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the container, or of the machine where there is none."""
    limit, none = tmp_path / "memory.max", tmp_path / "other"
    limit.write_text("1000000\n")
    none.write_text("max\n")
    monkeypatch.setattr(startup, "_LIMITS", (str(none), str(tmp_path / "missing")))
    machine = startup.array_bytes()
    monkeypatch.setattr(startup, "_LIMITS", (str(none), str(limit)))

    assert machine == int(0.7 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    assert startup.array_bytes() == 700_000
