"""Reads single keys from a terminal, without Enter."""

from __future__ import annotations

import os
import queue
import select
import sys
import threading
from types import TracebackType
from typing import Any

from edl.local.processes import Event, KeyPress

_POLL_S = 0.2


class KeyReader:
    """A context manager that puts pressed keys into a queue.

    It does nothing without a terminal, or while the process runs in the background (`&` in a shell): keys
    then belong to another program, and the kernel stops a process that reads them or changes settings.
    """

    def __init__(self, events: queue.Queue[Event]) -> None:
        self._events = events
        self._closed = threading.Event()
        self._saved_settings: list[Any] | None = None
        self._thread = threading.Thread(target=self._read, name="edl-keys", daemon=True)

    def __enter__(self) -> None:
        if not sys.stdin.isatty() or not _is_in_foreground():
            return
        import termios  # noqa: PLC0415 - systems without terminals lack this module
        import tty  # noqa: PLC0415 - see above

        self._saved_settings = list(termios.tcgetattr(sys.stdin))
        tty.setcbreak(sys.stdin)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restores the terminal."""
        self._closed.set()
        if self._saved_settings is not None and _is_in_foreground():
            import termios  # noqa: PLC0415 - see above

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._saved_settings)

    def _read(self) -> None:
        descriptor = sys.stdin.fileno()
        while not self._closed.is_set():
            if not _is_in_foreground():  # after Ctrl-Z and `bg`
                self._closed.wait(_POLL_S)
            elif select.select([descriptor], [], [], _POLL_S)[0] and _is_in_foreground():
                raw = os.read(descriptor, 16)
                if not raw:
                    return
                for character in raw.decode(errors="ignore"):
                    self._events.put(KeyPress(character))


def _is_in_foreground() -> bool:
    """Returns whether this process is in the foreground of its terminal."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # not the controlling terminal: there is no job control
        return True
