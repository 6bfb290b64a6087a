"""Cells that go wrong, for the tests of the player."""

import os
import subprocess
import sys
import threading

from e2e.gpu.cell import LeftOutError, Run

SLEEP = [sys.executable, "-c", "import time; print('asleep', flush=True); time.sleep(600)"]


def well(run: Run) -> None:
    """Records what it was given."""
    run.record(device=run.device, answer=42)


def wrong(run: Run) -> None:
    """Fails a check after a figure."""
    run.record(ratio=1.5)
    run.check(run.figures["ratio"] == 1.0, "the ratio is 1.5, and the bar is 1.0")


def crash(_: Run) -> None:
    """Ends without a word."""
    os.abort()


def elsewhere(_: Run) -> None:
    """Needs a package that is not installed."""
    raise LeftOutError("jax is not installed")


def hang(run: Run) -> None:
    """Waits forever, beside a sleeping child process."""
    run.record(begun=True, child=os.getpid())
    with subprocess.Popen(SLEEP) as process:  # noqa: S603 - fixed words
        run.record(pid=process.pid)
        threading.Event().wait()


def untidy(run: Run) -> None:
    """Leaves a process behind, in a session of its own."""
    process = subprocess.Popen(SLEEP, start_new_session=True)  # noqa: S603 - as above
    run.record(pid=process.pid)
