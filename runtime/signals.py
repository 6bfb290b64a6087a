"""Handlers of SIGTERM and SIGINT that exit at once. Who calls: `__main__.py` of components, as they start."""

import signal
from types import FrameType


def exit_on_signals() -> None:
    """Makes SIGTERM and SIGINT raise SystemExit(0), for the start, when nothing needs a stop yet.

    Process 1 of a container does not receive signals without a handler. Servers replace these
    handlers with their own.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
