"""What SIGTERM and SIGINT mean: an Event that loops wait on, or simply the end.

Who calls: `__main__.py` of every room, on the main thread.
"""

import os
import signal
import threading
from queue import SimpleQueue
from types import FrameType


def on_signals(*numbers: signal.Signals) -> threading.Event:
    """An Event that the first of `numbers` sets (SIGTERM and SIGINT if none are named).

    A second signal ends the process at once, in case the first one led nowhere.

    The handler may interrupt the main thread inside `Event.wait`, whose lock `Event.set` needs:
    it only puts into a SimpleQueue, which is made for that, and a thread of its own does the rest.
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
    """Makes SIGTERM and SIGINT raise SystemExit(0): for a start that holds nothing yet.

    As process 1 of a container we would not even get a SIGTERM that nobody handles. Servers
    replace these handlers by their own.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
