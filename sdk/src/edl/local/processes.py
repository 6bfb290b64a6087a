"""One process of a run: started with its output in a file, watched, ended."""

from __future__ import annotations

import contextlib
import os
import queue
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


@dataclass(frozen=True)
class Line:
    """A process wrote a line."""

    name: str
    text: str


@dataclass(frozen=True)
class Key:
    """The user pressed a key."""

    text: str


News = Union[Line, Key, None]
"""None wakes the run: a process ended, for example."""


class Process:
    """Started at once; its lines go to a file and into a queue."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        news: queue.Queue[News],
    ) -> None:
        self.name = name
        self.last = ""
        """The last line it wrote."""
        self.asked = ""
        """What was done to end it: "", "removed" or "killed"."""
        self.asked_s = 0.0
        """When, by the monotonic clock."""
        self._news = news
        self._log = log
        self._popen = subprocess.Popen(  # noqa: S603 - what the user asked to run
            [sys.executable, child.__file__, str(os.getpid()), *command],
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
        """Whether it has not ended."""
        return self._popen.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit code; minus a signal's number where that ended it; None while it runs."""
        return self._popen.poll()

    def remove(self) -> None:
        """SIGTERM."""
        self._end("removed", signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end("killed", signal.SIGKILL)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended in time; its last lines are read then."""
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(1)
        return True

    def _end(self, how: str, number: signal.Signals) -> None:
        if self.running:
            self.asked, self.asked_s = how, clock.monotonic_s()
            with contextlib.suppress(ProcessLookupError):
                self._popen.send_signal(number)

    def _read(self) -> None:
        stream: IO[bytes] | None = self._popen.stdout
        if stream is None:
            return
        with stream, self._log.open("ab") as file:
            for raw in stream:
                file.write(raw)
                file.flush()
                text = raw.decode(errors="replace").rpartition("\r")[2].rstrip()
                if text:
                    self.last = text
                    self._news.put(Line(self.name, text))
        self._popen.wait()
        self._news.put(None)
