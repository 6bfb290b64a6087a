"""Runs one command for a parent process and kills it when the parent ends.

A script of its own (`python child_guard.py LOG COMMAND...`), started by `e2e.cluster.process`.
It holds the read end of a pipe on its standard input whose write end only the parent has:
when the parent ends, however it ends, the pipe closes and the command is killed with
everything in its session's process group. Should the guard itself be killed, the kernel
kills the command (Linux; the guard has one thread, so that signal is tied to its life).

Orders on standard input: `T` sends SIGTERM to the command, `K` sends SIGKILL to it and to all
in its process group, end of file means `K`. On standard output it says the command's process
id; it exits with the command's exit code, or 128 + the signal that ended it. Imports little:
one starts with every component of a cluster.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; this script cannot import what `runtime.supervisor` has
NOT_STARTED = 127  # as a shell says it


def _die_with(guard: int) -> None:
    """In the child, before exec: SIGKILL when the guard's only thread ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:  # the guard ended before prctl took effect
            os._exit(NOT_STARTED)


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _keep(child: "subprocess.Popen[bytes]", wake: int) -> int:
    orders = True
    while child.poll() is None:
        ready, _, _ = select.select([wake, *([0] if orders else [])], [], [])
        if wake in ready:
            os.read(wake, 512)
        if 0 in ready:
            order = os.read(0, 1)
            orders = bool(order)
            if order == b"T":
                child.terminate()  # it alone, like a kubelet: its own children are its affair
            else:
                _signal_group(child.pid, signal.SIGKILL)
    return child.returncode


def main(log: str, command: list[str]) -> int:
    """Runs `command` with its output appended to `log`; returns the exit code to use."""
    guard = os.getpid()
    wake, wake_up = os.pipe()
    os.set_blocking(wake_up, False)
    signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with open(log, "ab", buffering=0) as output:  # noqa: PTH123 - pathlib costs start-up time
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: _die_with(guard),  # noqa: PLW1509 - no threads here
            )
        except OSError as error:
            output.write(f"cannot start {command[0]}: {error}\n".encode())
            return NOT_STARTED
    print(child.pid, flush=True)
    code = _keep(child, wake)
    _signal_group(child.pid, signal.SIGKILL)  # what it started and left behind
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
