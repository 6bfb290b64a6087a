"""Keys of a terminal, as `edl run` takes them."""

import subprocess
import sys
from pathlib import Path

from tests.sdk.support.loops import LIMIT_S

_BACKGROUND = """
import os, pty, signal, sys
child, terminal = pty.fork()
if child:
    while True:
        try:
            if not os.read(terminal, 1000):
                break
        except OSError:
            break
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
job = os.fork()
if not job:
    os.setpgid(0, 0)
    from queue import Queue
    from edl.local.keys import KeyReader
    with KeyReader(Queue()):
        os._exit(7)
_, state = os.waitpid(job, os.WUNTRACED)
if os.WIFSTOPPED(state):
    os.kill(job, signal.SIGKILL)
    os._exit(os.WSTOPSIG(state))
os._exit(os.waitstatus_to_exitcode(state))
"""
"""Does what a shell does for `edl run ... &`: a group of its own, and the same terminal."""


def test_a_run_in_the_background_takes_no_keys(tmp_path: Path) -> None:
    """The kernel would stop it, with all trainers, as soon as it changed the terminal's settings."""
    command = [sys.executable, "-c", _BACKGROUND]
    ended = subprocess.run(command, cwd=tmp_path, timeout=LIMIT_S, check=False)  # noqa: S603 - ours

    assert ended.returncode == 7
