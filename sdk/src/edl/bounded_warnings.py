"""Rate-limited warnings, for events that untrusted peers can cause."""

from __future__ import annotations

import logging
import threading

from edl import clock

LINES = 10
"""Maximum number of warnings per period."""
PERIOD_S = 60.0


class BoundedWarnings:
    """Writes the first warnings of each minute, and later the number of omitted ones; thread-safe."""

    def __init__(self, log: logging.Logger) -> None:
        """Creates the limit for one logger, without writing to it."""
        self._log = log
        self._lock = threading.Lock()
        self._since_s = float("-inf")
        self._count = 0
        """Number of warnings in the current minute."""

    def warn(self, text: str, *values: object) -> None:
        """Writes a warning, unless this minute's limit has been reached."""
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
