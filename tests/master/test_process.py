"""`python -m master` as a process: its usage, its signals, and kills."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from master.__main__ import main
from tests.master.processes import MasterProcess
from tests.master.serving import TOKEN
from tests.sdk.support.contract import Master, done
from tests.support.commands import Commands, Completed
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


def _once(commands: Commands, *arguments: str, **variables: str) -> Completed:
    return commands.run(main, "--listen", "127.0.0.1:0", *arguments, **variables)


def test_a_second_one_over_the_same_journal_ends_at_once(
    process: MasterProcess, commands: Commands
) -> None:
    """The first one continues, and ends with 0 on SIGTERM."""
    journal = ("--journal", str(process.journal))
    again = _once(commands, *journal, EDL_JOB="digits", EDL_TOKEN=TOKEN)

    assert again.returncode == 1
    assert "another master uses the journal" in again.stderr
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
    commands: Commands,
) -> None:
    """Exit code 2, with the setting and how to correct it; never a traceback."""
    journal = ("--journal", str(tmp_path / "journal"))
    completed = _once(commands, *arguments, *journal, **variables)

    assert completed.returncode == 2
    assert message in completed.stderr
    assert completed.stderr.count("\n") == 1


def test_a_directory_that_cannot_be_used_is_one_line(tmp_path: Path, commands: Commands) -> None:
    """Exit code 1."""
    (tmp_path / "file").write_text("")
    completed = _once(commands, "--journal", str(tmp_path / "file" / "x"), EDL_TOKEN=TOKEN)

    assert completed.returncode == 1
    assert completed.stderr.startswith("master: cannot use the journal in")
    assert completed.stderr.count("\n") == 1
