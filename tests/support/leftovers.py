"""A test run leaves no process, port or file behind, however it ends. A pytest plugin.

A run marks its environment, and pytest writes the test's name there; processes inherit both, orphans
too. So a worker finds what its tests have started, and the process that was called first finds what
is left of everything, Ctrl-C included. A process that ends frees its ports. Files lie in one
temporary folder, which is deleted last.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from types import FrameType

import psutil
import pytest

RUN, TEST, WORKER = "PYTEST_RUN_ID", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER"
"""Variables: this run, as one word; the test under way, by pytest; its worker, by pytest-xdist. None
begins with EDL_: tests start processes without such variables."""
GRACE = "EDL_TEST_GRACE_S"
"""Variable: how long a process may take to end after its test, or after SIGTERM."""
_GRACE_S, _KILLED_S = 3.0, 3.0
_ROUNDS = 3
_MEMORY = "/dev/shm"  # noqa: S108 - a private folder is made in it
_MIN_BYTES = 128 << 20
"""Free there at least; a run of all tests keeps a few megabytes at a time."""
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helpers of Python's multiprocessing: they end with the process that they serve."""
_folder = pytest.StashKey[Path]()
_foreign: set[int] = set()
"""Ids of live processes that this run has not started: a look at all of a desktop costs 30 ms."""


def pytest_configure(config: pytest.Config) -> None:
    """Marks the run, gives its files one folder, and lets SIGTERM and SIGHUP end it as Ctrl-C does."""
    if _is_worker(config):
        return
    os.environ[RUN] = secrets.token_hex(8)
    os.environ.pop(WORKER, None)  # of a run that has started this one
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else nohup lets it go on
        signal.signal(signal.SIGHUP, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="edl-tests-", dir=memory_folder())).resolve()
    config.stash[_folder] = folder
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    if config.option.basetemp is None:
        config.option.basetemp = str(folder / "t")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The run is over: what is left of it ends now, and is named."""
    if _is_worker(config):
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses Ctrl-C again waits for it
    _foreign.clear()
    if remaining := processes():
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"\nended what the run had left behind:\n{_table(remaining)}", file=sys.stderr)  # noqa: T201
        end(remaining)
    shutil.rmtree(config.stash[_folder], ignore_errors=True)
    signal.signal(signal.SIGINT, handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that did not end in time: its processes are named and ended."""
    report = yield
    if call.excinfo is not None and _is_timeout(call.excinfo.value):
        remaining = processes()
        report.sections.append((f"processes of {item.nodeid}", _table(remaining) or "none"))
        end(remaining)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """The last test of a file must have ended all processes that the file's tests have started."""
    report = ""
    try:
        yield
    finally:
        if nextitem is None or nextitem.path != item.path:  # or fixtures still need theirs
            report = _ended()
    if report:
        pytest.fail(f"tests of {item.path.name} left processes behind:\n{report}", pytrace=False)


def _ended() -> str:
    """Ends what tests have left behind, and names it; "" where they have left nothing."""
    _, alive = psutil.wait_procs(processes(), timeout=_grace_s())
    if not alive:
        return ""
    table = _table(alive)
    end(alive)
    return table


def processes() -> list[psutil.Process]:
    """All live processes that tests of this process, or of its workers, have started."""
    pids = set(psutil.pids())
    _foreign.intersection_update(pids)
    new_pids = pids - _foreign - {os.getpid()}
    if not new_pids:  # after most files
        return []
    children = psutil.Process().children(recursive=True)  # a fork does not see variables set later
    marked = {process for pid in new_pids for process in _process(pid) if _is_marked(process)}
    _foreign.update(new_pids - {process.pid for process in {*children, *marked}})
    return [process for process in {*children, *marked} if not _is_over(process)]


def _process(pid: int) -> list[psutil.Process]:
    """The process, unless it has ended."""
    try:
        return [psutil.Process(pid)]
    except psutil.Error:
        return []


def end(remaining: Iterable[psutil.Process]) -> None:
    """Sends SIGTERM to these, then SIGKILL to all of the run that are still there.

    Several times, since they may start others; not for ever, since one may hang in the kernel.
    """
    alive = list(remaining)
    _send(alive, signal.SIGTERM)
    psutil.wait_procs(alive, timeout=_grace_s())
    for _ in range(_ROUNDS):
        alive = processes()
        if not alive:
            return
        _send(alive, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=_KILLED_S)


def _grace_s() -> float:
    return float(os.environ.get(GRACE, _GRACE_S))


def _is_marked(process: psutil.Process) -> bool:
    try:
        variables = process.environ()
    except psutil.Error:  # it has ended, or is another user's
        return False
    worker = os.environ.get(WORKER)
    return (
        variables.get(RUN) == os.environ[RUN]
        and (worker is None or variables.get(WORKER) == worker)
        and process.pid != os.getpid()
    )


def _is_over(process: psutil.Process) -> bool:
    """Whether it has ended, or will end with the process of pytest that it serves."""
    try:
        command = " ".join(process.cmdline())
        return process.status() == psutil.STATUS_ZOMBIE or any(name in command for name in _HELPERS)
    except psutil.Error:
        return True


def memory_folder() -> str | None:
    """A file system in memory: journals and checkpoints are synced thousands of times.

    None, for the usual place, where the user names one, and where memory has little room or may
    hold no programs, as in many containers.
    """
    try:
        status = os.statvfs(_MEMORY)
    except OSError:
        return None
    usable = status.f_bavail * status.f_frsize >= _MIN_BYTES and not status.f_flag & os.ST_NOEXEC
    return _MEMORY if usable and "TMPDIR" not in os.environ else None


def _is_worker(config: pytest.Config) -> bool:
    """Whether another process of pytest has started this one."""
    return hasattr(config, "workerinput")


def _is_timeout(error: BaseException) -> bool:
    """Whether pytest-timeout has ended the test, which fails with this word then."""
    return isinstance(error, pytest.fail.Exception) and str(error).startswith("Timeout ")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    _send(psutil.Process().children(), signal.SIGINT)  # as a terminal does, which interrupts all
    raise KeyboardInterrupt


def _send(alive: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in alive:
        try:
            process.send_signal(number)
        except psutil.Error:  # it has ended, or is another user's now
            continue


def _table(remaining: Iterable[psutil.Process]) -> str:
    return "\n".join(_row(process) for process in remaining)


def _row(process: psutil.Process) -> str:
    try:
        test = process.environ().get(TEST, "")
        return f"  {process.pid}  {' '.join(process.cmdline())[:160]}  (of {test})"
    except psutil.Error:
        return f"  {process.pid}  (has ended)"
