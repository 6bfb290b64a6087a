"""The processes of an agent, with programs that fail as those on devices do."""

import os
import signal
import sys
from pathlib import Path

import pytest
from edl.agent.workers import Workers

LIMIT_S = 60.0
FAULT = "CUDA error: an illegal memory access was encountered"


def start(script: str, *, count: int = 1, wedged_s: float = 10.0) -> Workers:
    """Starts a program as all processes of an agent."""
    environments = [{**os.environ, "LOCAL_RANK": str(rank)} for rank in range(count)]
    return Workers([sys.executable, "-u", "-c", script], environments, wedged_s)


def failure(workers: Workers) -> str:
    """Waits until a process has failed."""
    for _ in range(int(LIMIT_S / 0.02)):
        workers.wait(0.02)
        if workers.failure:
            break
    return workers.failure


def test_a_wedged_process_counts_as_failed(capfd: pytest.CaptureFixture[str]) -> None:
    """One that names a fault of its device and lives on; what it says is seen as it is."""
    script = f"import sys, time; print({FAULT!r}, file=sys.stderr); time.sleep(600)"
    workers = start(script, wedged_s=0.1)
    try:
        text = failure(workers)
    finally:
        assert workers.stop(5.0)
    assert text == f"process 0 did not end within 0.1 s after the device fault {FAULT!r}"
    assert capfd.readouterr().err == f"{FAULT}\n"


def test_a_failure_has_its_reason() -> None:
    """The line about the device, or the last one: that of a traceback."""
    faulty = f"import os, sys; sys.stderr.write({FAULT!r} + '\\nterminate\\n'); os.abort()"
    for script, text in (
        (faulty, f"process 0 was killed by SIGABRT: {FAULT}"),
        (
            "raise ValueError('no such layer')",
            "process 0 exited with code 1: ValueError: no such layer",
        ),
        ("import sys; sys.exit(3)", "process 0 exited with code 3"),
    ):
        workers = start(script)
        try:
            assert failure(workers) == text
        finally:
            workers.stop(5.0)


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """As one that hangs in an abort of NCCL: after the grace, with all that it has started."""
    script = f"""
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    pathlib.Path({str(tmp_path)!r}, os.environ["LOCAL_RANK"]).touch()
time.sleep(600)
"""
    workers = start(script, count=2)
    try:
        for rank in ("0", "1"):
            for _ in range(int(LIMIT_S / 0.02)):
                if (tmp_path / rank).exists():
                    break
                workers.wait(0.02)
    finally:
        assert workers.stop(0.1)
    assert workers.failure.startswith(f"process 0 was killed by {signal.SIGKILL.name}")
