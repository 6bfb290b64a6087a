"""Processes that end with us, even when we are killed with SIGKILL.

Every command runs under a guard process (`child_guard.py`) that watches a pipe to this process.
Used for the control plane, for the Go build, and by `e2e.control_plane` for EDL's own processes.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_CHILD_GUARD = Path(__file__).with_name("child_guard.py")
_TAIL_BYTES = 4096
_GUARD_EXIT_S = 5.0


class Process:
    """One running command and its log. Not for sharing between threads."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Starts it at once; whether it comes up is for the caller to watch.

        Args:
            name: For messages.
            command: Program and arguments.
            log: Its output is appended there.
            env: Its whole environment; None means ours.
            cwd: Where it runs; None means here.
        """
        self.name = name
        self.log = log
        self._pid: int | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        self._guard = subprocess.Popen(
            # -I -S: the guard needs the standard library only, and to start fast.
            [sys.executable, "-I", "-S", str(_CHILD_GUARD), str(log), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,  # Ctrl-C is for us; we stop them in order
        )

    @property
    def pid(self) -> int:
        """The command's process id; 0 if it could not be started."""
        if self._pid is None:
            assert self._guard.stdout is not None
            line = self._guard.stdout.readline()
            self._pid = int(line) if line.strip() else 0
        return self._pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + signal for one that was killed."""
        code = self._guard.poll()
        return code if code is None or code >= 0 else 128 - code  # the guard itself was killed

    def terminate(self) -> None:
        """Asks it to stop."""
        self._order(b"T")

    def kill(self) -> None:
        """Ends it now (SIGKILL) and waits until it is gone."""
        self._order(b"K")
        self.wait(_GUARD_EXIT_S)

    def wait(self, timeout_s: float) -> bool:
        """Returns whether it ended within the time; gives the pipes back if so."""
        try:
            self._guard.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        _ = self.pid  # not to be had once the pipe is closed
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return True

    def last_lines(self, count: int = 3) -> str:
        """Returns the end of its log in one line, for error messages."""
        return last_lines(self.log, count)

    def _order(self, order: bytes) -> None:
        assert self._guard.stdin is not None
        _ = self.pid  # an order that overtakes the start would be lost with the guard
        if not self._guard.stdin.closed:
            with suppress(BrokenPipeError):
                os.write(self._guard.stdin.fileno(), order)


def last_lines(log: Path, count: int) -> str:
    """Returns the last lines of a file that are not empty, joined by " | "; says so if there are none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:]) or "(its log is empty)"
