"""Handlers of SIGTERM and SIGINT: set an Event that loops wait on, or exit at once.

Who calls: `__main__.py` of every component and command, on the main thread.
"""

import os
import signal
import threading
from queue import SimpleQueue
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
"""Exit code of a command that Ctrl-C ended, as in a shell: 130."""


def stop_event(*numbers: signal.Signals) -> threading.Event:
    """Returns an Event that the first of `numbers` sets (SIGTERM and SIGINT by default).

    A second signal ends the process at once, in case the first had no effect.

    The handler may interrupt the main thread inside `Event.wait`, whose lock `Event.set` needs. So
    it only puts into a reentrant SimpleQueue, and another thread sets the Event.
    """
    stopping = threading.Event()
    arrived: SimpleQueue[int] = SimpleQueue()

    def handle(number: int, _: FrameType | None) -> None:
        arrived.put(number)

    def watch() -> None:
        arrived.get()
        stopping.set()
        os._exit(128 + arrived.get())

    threading.Thread(target=watch, name="stop", daemon=True).start()
    for number in numbers or (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stopping


def exit_on_signals() -> None:
    """Makes SIGTERM and SIGINT raise SystemExit(0), for the start, when nothing needs a stop yet.

    Process 1 of a container does not receive signals without a handler. Servers replace these
    handlers with their own.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
