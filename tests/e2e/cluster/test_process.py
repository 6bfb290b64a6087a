import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster.process import Process, last_lines
from runtime.clock import monotonic_s

PATIENCE_S = 60.0
"""Ends a hang, and nothing else."""
PARENT = """
import sys, threading, time
from pathlib import Path
from e2e.cluster.process import Process

started = []

def start():  # the thread that starts it is gone long before the parent is
    ticks = "while :; do echo tick; sleep 0.02; done"
    started.append(Process("ticks", ["sh", "-c", ticks], Path(sys.argv[1])))

thread = threading.Thread(target=start)
thread.start()
thread.join()
print(started[0].pid, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    """Whether a process of that id runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before or while it was read
        return False


def soon(fact: Callable[[], bool]) -> bool:
    """Whether it becomes true; False ends a hang."""
    deadline_s = monotonic_s() + PATIENCE_S
    while not fact():
        if monotonic_s() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def parent(tmp_path: Path) -> "tuple[subprocess.Popen[bytes], int]":
    """A process that has started another, and the other's id."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdout is not None
    with process.stdout:
        return process, int(process.stdout.readline())


def guard_of(pid: int) -> int:
    """The process id of its parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_it_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Though SIGKILL leaves the parent no time to say so; until then it goes on working.

    The thread that started it is gone by then.
    """
    process, pid = parent(tmp_path)
    log = tmp_path / "log"
    enough = log.stat().st_size + len("tick\n") * 5
    assert soon(lambda: log.stat().st_size >= enough)
    process.kill()
    process.wait()

    assert soon(lambda: not alive(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's own")
def test_it_dies_with_its_guard(tmp_path: Path) -> None:
    """A killed guard takes the command with it, and its parent notices."""
    process = Process("sleep", ["sleep", "60"], tmp_path / "log")
    pid = process.pid
    os.kill(guard_of(pid), signal.SIGKILL)

    assert soon(lambda: not alive(pid))
    assert process.wait(PATIENCE_S)
    assert process.exit_code == 128 + signal.SIGKILL


def test_what_it_started_dies_with_it(tmp_path: Path) -> None:
    """Grandchildren are in its process group."""
    process = Process("sh", ["sh", "-c", "sleep 60 & echo $!; wait"], tmp_path / "log")
    log = tmp_path / "log"
    assert process.pid
    assert soon(lambda: log.read_text().endswith("\n"))
    started = int(log.read_text())
    assert alive(started)
    process.kill()

    assert soon(lambda: not alive(started))


def test_sigterm_lets_it_end_by_itself(tmp_path: Path) -> None:
    """Its own exit code is what we get."""
    script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    process = Process("sh", ["sh", "-c", script], tmp_path / "log")
    assert soon(lambda: process.last_lines() == "ready")
    assert process.exit_code is None
    process.terminate()

    assert process.wait(PATIENCE_S)
    assert process.exit_code == 7


def test_a_killed_one_says_so(tmp_path: Path) -> None:
    """128 + 9, as a shell says it; further orders do nothing."""
    process = Process("sleep", ["sleep", "60"], tmp_path / "log")
    process.kill()

    assert process.exit_code == 137
    process.kill()
    process.terminate()
    assert process.pid > 0


def test_waiting_is_bounded(tmp_path: Path) -> None:
    """A process that does not end is reported as such."""
    process = Process("sleep", ["sleep", "60"], tmp_path / "log")

    assert not process.wait(0.05)
    process.kill()


def test_a_missing_program_is_in_the_log(tmp_path: Path) -> None:
    """Exit code 127, no process id, and the reason as the log's last line."""
    process = Process("nothing", ["/no/such/program"], tmp_path / "logs" / "log")

    assert process.wait(PATIENCE_S)
    assert process.exit_code == 127
    assert process.pid == 0
    assert "cannot start /no/such/program" in process.last_lines()


def test_output_and_environment_are_the_callers(tmp_path: Path) -> None:
    """The log is appended to; environment and directory are those given."""
    log = tmp_path / "log"
    for word in ("one", "two"):
        process = Process(
            "sh", ["sh", "-c", "echo $WORD; pwd >&2"], log, env={"WORD": word}, cwd=tmp_path
        )
        assert process.wait(PATIENCE_S)

    assert log.read_text().split() == ["one", str(tmp_path), "two", str(tmp_path)]


def test_last_lines_of_no_log(tmp_path: Path) -> None:
    """An empty or missing log is said to be empty."""
    assert last_lines(tmp_path / "none", 3) == "(its log is empty)"
    (tmp_path / "log").write_text("a\n\n b\nc\n")
    assert last_lines(tmp_path / "log", 2) == "b | c"
