"""However a run of tests ends: it names what it leaves, and leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.support.leftovers import GRACE, RUN, memory_folder

ROOT = Path(__file__).parent.parent
SLEEPER = """
import os, signal, subprocess, sys, threading, time
from pathlib import Path

def sleeper(*, trap=""):
    "A process that lives in a session of its own, as its child does, which is an orphan then."
    return subprocess.Popen(["sh", "-c", trap + "sleep 77 & sleep 77"], start_new_session=True)

def begun():
    Path(os.environ["EDL_BEGUN"], str(os.getpid())).touch()
"""

HEARS_INTERRUPTS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command as a terminal does: a shell's background jobs, such as this run, may ignore Ctrl-C, and nohup SIGHUP."""
PLUGINS = "-p xdist -p pytest_timeout -p tests.support.leftovers"

Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Starts pytest on one file of tests, in a session of its own as a terminal would."""
    (tmp_path / "begun").mkdir()
    (tmp_path / "files").mkdir()

    def start(tests: str, *options: str) -> "subprocess.Popen[str]":
        (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {PLUGINS}\n")
        (tmp_path / "test_it.py").write_text(SLEEPER + tests)
        variables = {
            "PYTHONPATH": str(ROOT),
            "EDL_BEGUN": str(tmp_path / "begun"),
            "TMPDIR": str(tmp_path / "files"),
            GRACE: "0.3",  # what is left here never ends by itself
            "PYTEST_ADDOPTS": "",  # those are for the run that this test is part of
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # some take seconds to import
        }
        return subprocess.Popen(  # noqa: S603 - pytest, on a file of ours
            [
                *(sys.executable, "-c", HEARS_INTERRUPTS, sys.executable),
                *("-m", "pytest", "-p", "no:cacheprovider", "test_it.py", *options),
            ],
            cwd=tmp_path,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return start


def ended(process: "subprocess.Popen[str]", folder: Path) -> str:
    """Waits for the end, looks for what is left, and gives what was printed."""
    output, _ = process.communicate(timeout=100)
    assert list((folder / "files").iterdir()) == []
    assert not [other for other in psutil.process_iter() if _is_of(other, folder)]
    return output


def _is_of(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.environ().get("EDL_BEGUN") == str(folder / "begun")
    except psutil.Error:
        return False


def wait_for(process: "subprocess.Popen[str]", begun: int, folder: Path) -> None:
    """Until so many tests of a run are under way."""
    while len(list((folder / "begun").iterdir())) < begun:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def test_a_test_that_hangs_is_named_with_its_processes(run: Run, tmp_path: Path) -> None:
    """Its time-out fails it, its report lists what it has started, and the next test runs.

    What it has started ends although it ignores SIGTERM.
    """
    tests = """
import pytest

@pytest.mark.timeout(1)
def test_hangs():
    sleeper(trap="trap '' TERM; ").wait()

def test_goes_on():
    pass
"""
    output = ended(run(tests, "-n", "0"), tmp_path)
    assert "processes of test_it.py::test_hangs" in output
    assert "sleep 77" in output
    assert "1 failed, 1 passed" in output


def test_a_hang_outside_of_python_is_named_too(run: Run, tmp_path: Path) -> None:
    """No signal reaches it: its worker ends, the run names the test and what it had started."""
    tests = """
def test_hangs():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    sleeper().wait()
"""
    limits = ("-o", "timeout=1", "-o", "faulthandler_timeout=2")
    options = ("-n", "1", "--max-worker-restart=0", *limits, "-o", "faulthandler_exit_on_timeout=1")
    output = ended(run(tests, *options), tmp_path)
    assert "test_hangs" in output
    assert "crashed while running" in output
    assert "ended what the run had left behind" in output
    assert "sleep 77" in output


@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGINT, 0),
        (signal.SIGTERM, 0),
        (signal.SIGINT, 2),
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.soak),  # as without workers
        pytest.param(signal.SIGHUP, 2, marks=pytest.mark.soak),  # likewise
    ],
)
def test_an_interrupted_run_leaves_nothing(
    run: Run, tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    """Ctrl-C and SIGHUP go to all processes of a terminal, SIGTERM to the one that was called."""
    tests = """
import pytest

@pytest.mark.parametrize("index", range(2))
def test_waits(index, tmp_path):
    (tmp_path / "file").touch()
    process = sleeper()
    begun()
    process.wait()
"""
    process = run(tests, "-n", str(workers), "-o", "timeout=0")
    wait_for(process, max(1, workers), tmp_path)
    (os.kill if number == signal.SIGTERM else os.killpg)(process.pid, number)
    output = ended(process, tmp_path)
    assert process.returncode == 2
    assert "KeyboardInterrupt" in output or "Interrupted" in output


def test_a_file_that_leaves_a_process_behind_fails(run: Run, tmp_path: Path) -> None:
    """The process is named with its test, and ended."""
    tests = """
def test_leaves():
    sleeper()
"""
    output = ended(run(tests, "-n", "0"), tmp_path)
    assert "tests of test_it.py left processes behind" in output
    assert "(of test_it.py::test_leaves (call))" in output
    assert "1 passed, 1 error" in output


def test_a_file_whose_teardown_fails_blames_no_other(run: Run, tmp_path: Path) -> None:
    """What it left behind is ended before the next file; the failure stays the one that it is."""
    (tmp_path / "test_later.py").write_text("def test_later():\n    pass\n")
    tests = """
import pytest

@pytest.fixture
def broken():
    yield
    raise RuntimeError("no teardown")

def test_leaves(broken):
    sleeper()
"""
    output = ended(run(tests, "test_later.py", "-n", "0"), tmp_path)
    assert "RuntimeError: no teardown" in output
    assert "left processes behind" not in output
    assert "2 passed, 1 error" in output


def test_this_very_run_is_marked() -> None:
    """The plugin is in force here as well."""
    assert os.environ[RUN]


@pytest.mark.parametrize(
    ("free_bytes", "flags", "variables", "in_memory"),
    [
        (4 << 30, 0, {}, True),
        (64 << 20, 0, {}, False),
        (4 << 30, os.ST_NOEXEC, {}, False),
        (4 << 30, 0, {"TMPDIR": "/elsewhere"}, False),
    ],
)
def test_files_of_tests_are_in_memory_where_that_works(
    monkeypatch: pytest.MonkeyPatch,
    free_bytes: int,
    flags: int,
    variables: dict[str, str],
    in_memory: bool,
) -> None:
    """Not in a container's few megabytes, or where no program may run, or against the user's word."""
    status = SimpleNamespace(f_bavail=free_bytes >> 12, f_frsize=1 << 12, f_flag=flags)
    monkeypatch.setattr(os, "statvfs", lambda _: status)
    monkeypatch.delenv("TMPDIR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert (memory_folder() is not None) is in_memory
