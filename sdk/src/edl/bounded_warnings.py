"""Warnings that strangers can cause: a few lines a minute, however many there are."""

from __future__ import annotations

import logging
import threading

from edl import clock

LINES = 10
"""In a minute."""
PERIOD_S = 60.0


class BoundedWarnings:
    """Writes the first ones of each minute, and in the next how many it left out; thread-safe."""

    def __init__(self, log: logging.Logger) -> None:
        """Writes nothing yet."""
        self._log = log
        self._lock = threading.Lock()
        self._since_s = float("-inf")
        self._count = 0
        """Of this minute."""

    def warn(self, text: str, *values: object) -> None:
        """Writes a warning, unless there were enough of them in this minute."""
        now_s = clock.monotonic_s()
        omitted = 0
        with self._lock:
            if now_s - self._since_s >= PERIOD_S:
                omitted = max(0, self._count - LINES)
                self._since_s, self._count = now_s, 0
            self._count += 1
            is_written = self._count <= LINES
        if omitted:
            self._log.warning("%d more lines like the next were left out", omitted)
        if is_written:
            self._log.warning(text, *values)
