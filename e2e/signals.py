"""Ends of programs by SIGTERM and SIGINT: an Event that loops wait on, and the exit code of Ctrl-C."""

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
