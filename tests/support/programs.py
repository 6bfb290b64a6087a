"""Programs of a few lines, run as processes of their own that receive signals."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.runtime.servers import ROOT


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[str]]:
    """Runs `program` and waits until it is ready."""
    with subprocess.Popen(  # noqa: S603 - our own text
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert line(process) == "ready"
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
