import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.runtime.servers import ROOT, START_S

_WAITS = """
import time
from runtime import signals
event = signals.stop_event()
print("ready", flush=True)
event.wait()
print("stopping", flush=True)
[time.sleep(0.05) for _ in range(400)]
"""
_ENDS = """
import time
from runtime import signals
signals.exit_on_signals()
try:
    print("ready", flush=True)
    [time.sleep(0.05) for _ in range(400)]
finally:
    print("cleaned", flush=True)
"""


@contextmanager
def _started(program: str) -> Iterator[subprocess.Popen[str]]:
    """Runs `program` and waits until it is ready."""
    with subprocess.Popen(  # noqa: S603 - our own text
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert _line(process) == "ready"
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_sets_the_event_and_the_second_ends(number: signal.Signals) -> None:
    """Loops get to stop after the first signal; the second one does not wait for them."""
    with _started(_WAITS) as process:
        process.send_signal(number)
        line = _line(process)
        process.send_signal(number)

        assert line == "stopping"
        assert process.wait(START_S) == 128 + number


def test_exit_unwinds() -> None:
    """A signal during the start ends the process with 0 and runs finally blocks."""
    with _started(_ENDS) as process:
        process.send_signal(signal.SIGTERM)

        assert _line(process) == "cleaned"
        assert process.wait(START_S) == 0
