"""SIGTERM: heard at once, even while the program is deep in a step, and answered in time.

Python runs signal handlers between two of the main thread's instructions, so a long matrix product
would swallow the whole grace. The interpreter writes each signal's number into a pipe at once,
though, and a thread of ours reads it there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM
"""143, as a shell shows a process that SIGTERM ended: never reads as success."""
_LOOK_S = 0.05
_SIGTERM = {signal.SIGTERM}


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """While nothing is held yet, SIGTERM ends the process with 143; for the main thread.

    Imports of frameworks take seconds in which they set handlers of their own in C: PaddlePaddle's
    prints the stack, and where it interrupts an allocation it hangs for ever. So SIGTERM is blocked,
    and a thread looks whether one is pending. Afterwards it is as the system has it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGTERM)
    over = threading.Event()
    thread = threading.Thread(target=_look, args=(over,), name="edl-loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGTERM)


def _look(over: threading.Event) -> None:
    while not over.wait(_LOOK_S):
        if signal.SIGTERM in signal.sigpending():
            os._exit(EXIT_CODE)


class Watch:
    """Calls `heard` in a thread of its own when SIGTERM comes; once."""

    def __init__(self, heard: Callable[[], object]) -> None:
        self._heard = heard
        self._pid = os.getpid()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._installed = False
        self._given_back = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="edl-sigterm", daemon=True)
        self._thread.start()

    def install(self) -> bool:
        """Takes SIGTERM over.

        Returns:
            False, and nothing is taken, where the program has a handler of its own or where this
            is not the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, None):
            return False  # None is a library's own, such as PaddlePaddle's: it exits at once
        before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)  # asyncio's, for example; the handler has to do
        signal.signal(signal.SIGTERM, self._handle)
        self._installed = True
        return True

    def remove(self) -> None:
        """Gives SIGTERM back and ends the thread.

        Only the main thread may give a signal back. Called from another, all stays as it is, but
        SIGTERM ends the process at once, as it does in a program that has asked for nothing else.
        """
        if self._installed and threading.current_thread() is not threading.main_thread():
            self._given_back.set()
            return
        if self._installed:
            self._installed = False
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._free_wakeup()
        self._write(0)

    def _free_wakeup(self) -> None:
        """A number of a closed file may be another file's soon: no signal may be written there."""
        now = signal.set_wakeup_fd(-1)
        if now not in (-1, self._writing):
            signal.set_wakeup_fd(now)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a child that was forked: it has no tasks to hand back
            os._exit(EXIT_CODE)
        self._write(number)

    def _write(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writing, bytes([number]))

    def _listen(self) -> None:
        while True:
            for number in os.read(self._reading, 64):
                if number == signal.SIGTERM:
                    if self._given_back.is_set():
                        os._exit(EXIT_CODE)
                    self._heard()
                    return
                if number == 0:
                    os.close(self._reading)
                    os.close(self._writing)
                    return
