"""Single keys from a terminal, without Enter."""

from __future__ import annotations

import os
import queue
import select
import sys
import threading
from types import TracebackType
from typing import Any

from edl.local.processes import Key, News

_LOOK_S = 0.2


class Keys:
    """A context in which keys come into the queue as they are pressed; nothing without a terminal."""

    def __init__(self, news: queue.Queue[News]) -> None:
        self._news = news
        self._over = threading.Event()
        self._before: list[Any] | None = None
        self._thread = threading.Thread(target=self._read, name="edl-keys", daemon=True)

    def __enter__(self) -> None:
        if not sys.stdin.isatty():
            return
        import termios  # noqa: PLC0415 - not on every system; there, keys do nothing
        import tty  # noqa: PLC0415 - as above

        self._before = list(termios.tcgetattr(sys.stdin))
        tty.setcbreak(sys.stdin)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The terminal is as it was before."""
        self._over.set()
        if self._before is not None:
            import termios  # noqa: PLC0415 - as above

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        place = sys.stdin.fileno()
        while not self._over.is_set():
            if select.select([place], [], [], _LOOK_S)[0]:
                raw = os.read(place, 16)
                if not raw:
                    return
                for one in raw.decode(errors="ignore"):
                    self._news.put(Key(one))
