"""Calls a program's `on_broken` on a thread of its own: the calls to the master must go on meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("edl")

_LONG_S = 5.0


class BreakCalls:
    """One program's callback for rounds that cannot continue; never called twice at once."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts a call if none is under way; returns at once. Used by one thread at a time."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._call, name="edl-on-broken", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Waits for the call under way: it must not end a collective of the next round."""
        thread = self._thread
        if thread is None:
            return
        thread.join(_LONG_S)
        if thread.is_alive():
            log.warning("on_broken takes more than %.0f s: the next round waits for it", _LONG_S)
            thread.join()

    def _call(self) -> None:
        try:
            self._callback()
        except Exception:
            log.exception("on_broken failed")
