"""`python -m master` as a process: its usage, its signals, and its death."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from edl.local.ports import free_ports

from master.__main__ import main
from tests.master.serving import LIMIT_S, TOKEN
from tests.reconciler.waiting import until
from tests.sdk.contract import Master, done


class Process:
    """One master after another, at one port and over one journal."""

    def __init__(self, root: Path, *more: str) -> None:
        self._more = more
        (self.port,) = free_ports(1)
        self.journal = root / "journal"
        self.run: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        """Returns when it serves."""
        self.run = subprocess.Popen(  # noqa: S603 - our own program
            _command(
                *("--listen", f"127.0.0.1:{self.port}", "--journal", str(self.journal)), *self._more
            ),
            env=_environment(EDL_JOB="digits", EDL_TOKEN=TOKEN),
            stderr=subprocess.PIPE,
            text=True,
        )
        until(self._serves)

    def end(self, number: signal.Signals) -> int:
        """Its exit code after a signal."""
        self.run.send_signal(number)
        code = self.run.wait(LIMIT_S)
        assert self.run.stderr is not None
        self.run.stderr.close()
        return code

    def _serves(self) -> bool:
        assert self.run.poll() is None, self.run.communicate()[1]
        try:
            return Master(self.port, TOKEN).ask("GET", "/healthz")[0] == 200
        except OSError:
            return False


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "master", *arguments]


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return {**kept, **more}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """A master that serves."""
    found = Process(tmp_path)
    yield found
    if found.run.poll() is None:
        found.end(signal.SIGKILL)


def test_killed_it_serves_again_with_everything_it_answered(process: Process) -> None:
    """Leases are as they were, and trainers need not join again."""
    master = Master(process.port, TOKEN)
    master.describe(epochs=2)
    one = master.join("trainer-0")
    leases = one.work(3)["tasks"]
    one.work(done=[done(leases[0])])
    process.end(signal.SIGKILL)
    process.start()
    results = one.work(done=[done(lease) for lease in leases])["results"]
    status = master.ask("GET", "/v1/status")[1]

    assert results == ["accepted"] * 3
    assert status["datasets"]["train"]["done_records"] == 30
    assert status["generation"] == 1


@pytest.fixture(name="once")
def _once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Runs the command in this process, to its end: the exit code, and what it says on stderr."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def run(*arguments: str, **more: str) -> tuple[int, str]:
        for name in [name for name in os.environ if name.startswith("EDL_")]:
            monkeypatch.delenv(name)
        for name, value in more.items():
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
    process: Process, once: Callable[..., tuple[int, str]]
) -> None:
    """The first one serves on, and ends with 0 on SIGTERM."""
    code, said = once("--journal", str(process.journal), EDL_JOB="digits", EDL_TOKEN=TOKEN)

    assert code == 1
    assert "another master uses the journal" in said
    assert Master(process.port, TOKEN).ask("GET", "/healthz")[0] == 200
    assert process.end(signal.SIGTERM) == 0


def test_bad_use_ends_the_process() -> None:
    """With one line on stderr and exit code 2, as the command in this process does below."""
    found = subprocess.run(  # noqa: S603 - our own program
        _command("--listen", "nowhere"),
        env=_environment(EDL_TOKEN=TOKEN),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert found.returncode == 2
    assert "--listen" in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "more", "said"),
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
    more: dict[str, str],
    said: str,
    tmp_path: Path,
    once: Callable[..., tuple[int, str]],
) -> None:
    """Exit code 2, the setting, and the way out; never a traceback."""
    code, text = once(*arguments, "--journal", str(tmp_path / "journal"), **more)

    assert code == 2
    assert said in text
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
