"""Processes that end with us, even when we are killed with SIGKILL.

Every command runs under a keeper (`keeper.py`) that watches a pipe to this process. Used
for the control plane, for the Go build, and by `e2e.edl` for EDL's own processes.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_KEEPER = Path(__file__).with_name("keeper.py")
_TAIL_BYTES = 4096
_KEEPER_LEAVES_S = 5.0


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
        self._keeper = subprocess.Popen(
            # -I -S: the keeper needs the standard library only, and to start fast.
            [sys.executable, "-I", "-S", str(_KEEPER), str(log), *command],
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
            assert self._keeper.stdout is not None
            line = self._keeper.stdout.readline()
            self._pid = int(line) if line.strip() else 0
        return self._pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + signal for one that was killed."""
        code = self._keeper.poll()
        return code if code is None or code >= 0 else 128 - code  # the keeper itself was killed

    def terminate(self) -> None:
        """Asks it to stop."""
        self._order(b"T")

    def kill(self) -> None:
        """Ends it now (SIGKILL) and waits until it is gone."""
        self._order(b"K")
        self.wait(_KEEPER_LEAVES_S)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within the time; gives the pipes back if so."""
        try:
            self._keeper.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        _ = self.pid  # not to be had once the pipe is closed
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return True

    def last_lines(self, count: int = 3) -> str:
        """The end of its log in one line, for error messages."""
        return last_lines(self.log, count)

    def _order(self, order: bytes) -> None:
        assert self._keeper.stdin is not None
        _ = self.pid  # an order that overtakes the start would be lost with the keeper
        if not self._keeper.stdin.closed:
            with suppress(BrokenPipeError):
                os.write(self._keeper.stdin.fileno(), order)


def last_lines(log: Path, count: int) -> str:
    """The last lines of a file that are not empty, joined by " | "; says so if there are none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:]) or "(its log is empty)"
