"""A child process of a run, whose output goes to a file."""

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
"""None wakes the run, for example because a process ended."""
_LOG_LINE = re.compile(r"\d\d:\d\d:\d\d edl ")
"""How a line of the SDK's log begins: the session ends below the traceback of a program."""


class _LogFile:
    """The file of a process's output; lines that cannot be written, as on a full disk, are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._has_failed = False

    def write(self, raw: bytes) -> None:
        """Appends a line; the first that cannot be written is reported."""
        try:
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            self._file.write(raw)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                text = "%s cannot be written: %s; lines are missing in it from here on"
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
        """Its latest line of output."""
        self._last_own_line = ""
        self.stopped_by = ""
        """How it was ended: "" (not at all), "removed" (SIGTERM) or "killed" (SIGKILL)."""
        self.stopped_at_s = 0.0
        """When it was ended, by the monotonic clock."""
        self._events = events
        self._log = log_path
        self._popen = subprocess.Popen(  # noqa: S603 - what the user asked to run
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
        """Whether it is running."""
        return self._popen.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit code; -N if signal N ended it; None while it runs."""
        return self._popen.poll()

    @property
    def last_words(self) -> str:
        """Its latest line that is not of the SDK's log: an error of the program; "-" for no output."""
        return self._last_own_line or self.last_line or "-"

    @property
    def headline(self) -> str:
        """What one line of a terminal says of it: why it failed, or its latest line without its time."""
        if self.code not in (None, 0, EXIT_CODE):
            return self.last_words
        return _LOG_LINE.sub("", self.last_line)

    def remove(self) -> None:
        """Sends SIGTERM."""
        self._end("removed", signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._end("killed", signal.SIGKILL)

    def wait(self, timeout_s: float) -> bool:
        """Waits for its end and its last output; returns False on time-out."""
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(1)
        return True

    def _end(self, how: str, number: signal.Signals) -> None:
        if self.running:
            self.stopped_by, self.stopped_at_s = how, clock.monotonic_s()
            with contextlib.suppress(ProcessLookupError):
                self._popen.send_signal(number)

    def _read(self) -> None:
        stream: IO[bytes] | None = self._popen.stdout
        if stream is None:
            return
        # the pipe is read whatever becomes of the file: a process whose output nobody reads fails
        with stream, contextlib.closing(_LogFile(self._log)) as file:
            for raw in stream:
                file.write(raw)
                text = raw.decode(errors="replace").rpartition("\r")[2].rstrip()
                if text:
                    self.last_line = text
                    if not _LOG_LINE.match(text):
                        self._last_own_line = text
                    self._events.put(OutputLine(self.name, text))
        self._popen.wait()
        self._events.put(None)


def stop_all(processes: Sequence[Process], grace_s: float) -> None:
    """Sends SIGTERM to all, then SIGKILL to those that still run after the grace period."""
    for process in processes:
        process.remove()
    until_s = clock.monotonic_s() + grace_s
    for process in processes:
        if not process.wait(max(0.0, until_s - clock.monotonic_s())):
            process.kill()
            process.wait(grace_s)
