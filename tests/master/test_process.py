"""`python -m master` as a process: its usage, its signals, and its death."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edl.local.ports import free_ports

from runtime import clock
from tests.master.serving import TOKEN
from tests.reconciler.waiting import until
from tests.sdk.contract import Master, done

_START_S = 20.0


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
        until(self._serves, _START_S)

    def end(self, number: signal.Signals) -> int:
        """Its exit code after a signal."""
        self.run.send_signal(number)
        code = self.run.wait(_START_S)
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
    begun_s = clock.monotonic_s()
    process.start()
    took_s = clock.monotonic_s() - begun_s
    results = one.work(done=[done(lease) for lease in leases])["results"]
    status = master.ask("GET", "/v1/status")[1]

    assert results == ["accepted"] * 3
    assert status["datasets"]["train"]["done_records"] == 30
    assert status["generation"] == 1
    assert took_s < 10.0  # the bar is 3 s, and `make bench` holds it; tests share their cores


def test_it_ends_with_0_on_sigterm(process: Process) -> None:
    """And says nothing but what it logs."""
    assert process.end(signal.SIGTERM) == 0


def test_a_second_one_over_the_same_journal_ends_at_once(process: Process) -> None:
    """The first one serves on."""
    again = _once("--journal", str(process.journal), EDL_JOB="digits", EDL_TOKEN=TOKEN)

    assert again.returncode == 1
    assert "another master uses the journal" in again.stderr
    assert Master(process.port, TOKEN).ask("GET", "/healthz")[0] == 200


def _once(*arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603 - our own program
        _command("--listen", "127.0.0.1:0", *arguments),
        env=_environment(**more),
        capture_output=True,
        text=True,
        timeout=_START_S,
        check=False,
    )


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
    arguments: tuple[str, ...], more: dict[str, str], said: str, tmp_path: Path
) -> None:
    """Exit code 2, the setting, and the way out; never a traceback."""
    found = _once(*arguments, "--journal", str(tmp_path / "journal"), **more)

    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_directory_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    """Exit code 1."""
    (tmp_path / "file").write_text("")
    found = _once("--journal", str(tmp_path / "file" / "x"), EDL_TOKEN=TOKEN)

    assert found.returncode == 1
    assert found.stderr.startswith("master: cannot use the journal in")
