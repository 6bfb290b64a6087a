"""The child processes of a run, whose output goes to files."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Union

from edl import clock
from edl.local import child
from edl.master.sigterm import EXIT_CODE

log = logging.getLogger("edl.run")


@dataclass(frozen=True)
class OutputLine:
    """A line of output of a process."""

    name: str
    text: str


@dataclass(frozen=True)
class KeyPress:
    """A key that the user pressed."""

    text: str


Event = Union[OutputLine, KeyPress, None]
"""None only wakes the run, for example because a process ended."""
_LOG_LINE = re.compile(r"\d\d:\d\d:\d\d edl ")
"""Prefix of the SDK's log lines. A session may write such lines after the program's traceback."""


class _LogFile:
    """The log file of a process; lines that cannot be written, for example to a full disk, are skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._has_failed = False

    def write(self, raw: bytes) -> None:
        """Appends a line; logs a warning for the first line that cannot be written."""
        try:
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            self._file.write(raw)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                text = "cannot write %s: %s; it lacks lines from here on"
                log.warning(text, self._path, error.strerror or error)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


class Process:
    """A child process, started on construction; its output goes to a file and a queue."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        log_path: Path,
        events: queue.Queue[Event],
    ) -> None:
        self.name = name
        self.last_line = ""
        """The latest line of output."""
        self._last_program_line = ""
        self.stopped_by = ""
        """How the run stopped the process: "" (not stopped), "removed" (SIGTERM) or "killed"
        (SIGKILL)."""
        self.stopped_at_s = 0.0
        """When the run stopped the process, by the monotonic clock."""
        self._events = events
        self._log = log_path
        self._popen = subprocess.Popen(  # noqa: S603 - runs the program that the user named
            [sys.executable, "-S", child.__file__, str(os.getpid()), *command],
            env={**os.environ, **environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._popen.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code; -N if signal N ended the process, None while it runs."""
        return self._popen.poll()

    @property
    def last_words(self) -> str:
        """The last line that the program itself has written, such as its error.

        Without one, the SDK's last log line; "-" if there is no output at all.
        """
        return self._last_program_line or self.last_line or "-"

    @property
    def headline(self) -> str:
        """The text for the process on the screen: why it failed, or its latest line without the time."""
        if self.code not in (None, 0, EXIT_CODE):
            return self.last_words
        return _LOG_LINE.sub("", self.last_line)

    def remove(self) -> None:
        """Sends SIGTERM."""
        self._stop("removed", signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._stop("killed", signal.SIGKILL)

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end of the process and its last output; returns False after the timeout."""
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(1)
        return True

    def _stop(self, how: str, number: signal.Signals) -> None:
        if self.running:
            self.stopped_by, self.stopped_at_s = how, clock.monotonic_s()
            with contextlib.suppress(ProcessLookupError):
                self._popen.send_signal(number)

    def _read(self) -> None:
        stream: IO[bytes] | None = self._popen.stdout
        if stream is None:
            return
        # keep reading even if the file cannot be written: with a full pipe the process would block
        with stream, contextlib.closing(_LogFile(self._log)) as file:
            for raw in stream:
                file.write(raw)
                text = raw.decode(errors="replace").rpartition("\r")[2].rstrip()
                if text:
                    self.last_line = text
                    if not _LOG_LINE.match(text):
                        self._last_program_line = text
                    self._events.put(OutputLine(self.name, text))
        self._popen.wait()
        self._events.put(None)


def stop_all(processes: Sequence[Process], grace_s: float) -> None:
    """Sends SIGTERM to all processes, then SIGKILL to any that still run after the grace period."""
    for process in processes:
        process.remove()
    until_s = clock.monotonic_s() + grace_s
    for process in processes:
        if not process.wait(max(0.0, until_s - clock.monotonic_s())):
            process.kill()
            process.wait(grace_s)
