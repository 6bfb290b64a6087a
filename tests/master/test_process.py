"""`python -m master` as a process: its usage, its signals, and kills."""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from master.__main__ import main
from tests.master.processes import MasterProcess
from tests.master.serving import TOKEN
from tests.sdk.support.contract import Master, done
from tests.support.server_process import run_to_end


@pytest.fixture
def process(tmp_path: Path) -> Iterator[MasterProcess]:
    """A master that serves."""
    running_master = MasterProcess(tmp_path)
    yield running_master
    running_master.end(signal.SIGKILL)


def test_killed_it_serves_again_with_everything_it_answered(process: MasterProcess) -> None:
    """The leases are the same, and trainers need not join again."""
    master = Master(process.port, TOKEN)
    master.describe(epochs=2)
    trainer = master.join("trainer-0")
    leases = trainer.work(3)["tasks"]
    trainer.work(done=[done(leases[0])])
    process.end(signal.SIGKILL)
    process.start()
    results = trainer.work(done=[done(lease) for lease in leases])["results"]
    status = master.ask("GET", "/v1/status")[1]

    assert results == ["accepted"] * 3
    assert status["datasets"]["train"]["done_records"] == 30
    assert status["generation"] == 1


@pytest.fixture(name="once")
def _once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Runs the command in this process; returns the exit code and the text on stderr."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def run(*arguments: str, **variables: str) -> tuple[int, str]:
        for name in [name for name in os.environ if name.startswith("EDL_")]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        try:
            code = main(["--listen", "127.0.0.1:0", *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        return code, capsys.readouterr().err

    yield run
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_second_one_over_the_same_journal_ends_at_once(
    process: MasterProcess, once: Callable[..., tuple[int, str]]
) -> None:
    """The first one continues, and ends with 0 on SIGTERM."""
    code, text = once("--journal", str(process.journal), EDL_JOB="digits", EDL_TOKEN=TOKEN)

    assert code == 1
    assert "another master uses the journal" in text
    assert Master(process.port, TOKEN).ask("GET", "/healthz")[0] == 200
    assert process.end(signal.SIGTERM) == 0


def test_bad_use_ends_the_process() -> None:
    """With one line on stderr and exit code 2, as the command in this process does below."""
    completed = run_to_end("master", "--listen", "nowhere", EDL_TOKEN=TOKEN)

    assert completed.returncode == 2
    assert "--listen" in completed.stderr
    assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ((), {}, "EDL_TOKEN must hold the job's token"),
        ((), {"EDL_TOKEN": "short"}, "at least 16 characters"),
        (("--token-file", "/nothing/here"), {}, "--token-file /nothing/here: No such file"),
        (("--heartbeat-seconds", "0"), {"EDL_TOKEN": TOKEN}, "--heartbeat-seconds"),
        (("--snapshot-configmap", "digits"), {"EDL_TOKEN": TOKEN}, "NAMESPACE/NAME"),
        (("--listen", "nowhere"), {"EDL_TOKEN": TOKEN}, "--listen"),
        (("--stuck-seconds", "0"), {"EDL_TOKEN": TOKEN}, "--stuck-seconds"),
    ],
)
def test_bad_use_is_one_line(
    arguments: tuple[str, ...],
    variables: dict[str, str],
    message: str,
    tmp_path: Path,
    once: Callable[..., tuple[int, str]],
) -> None:
    """Exit code 2, with the setting and how to correct it; never a traceback."""
    code, text = once(*arguments, "--journal", str(tmp_path / "journal"), **variables)

    assert code == 2
    assert message in text
    assert text.count("\n") == 1


def test_a_directory_that_cannot_be_used_is_one_line(
    tmp_path: Path, once: Callable[..., tuple[int, str]]
) -> None:
    """Exit code 1."""
    (tmp_path / "file").write_text("")
    code, text = once("--journal", str(tmp_path / "file" / "x"), EDL_TOKEN=TOKEN)

    assert code == 1
    assert text.startswith("master: cannot use the journal in")
    assert text.count("\n") == 1
