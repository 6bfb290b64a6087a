"""SIGTERM handling that does not wait for the main thread, even during a long step.

Python runs signal handlers between bytecode instructions of the main thread, so a long matrix product
could delay a handler for the whole grace period. The interpreter writes each signal's number to a wake-up
pipe at once, however, and a thread reads the number from this pipe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM
"""143, the code that a shell reports for a process that SIGTERM ended; it never means success."""
_POLL_S = 0.05
_SIGTERM = {signal.SIGTERM}


@contextlib.contextmanager
def exiting_on_sigterm() -> Iterator[None]:
    """Exits with code 143 on SIGTERM within the context.

    Only the main thread may use this, and only before this trainer holds tasks. Importing a framework takes
    seconds and may install signal handlers in C. PaddlePaddle's handler prints the stack, and hangs forever
    if it interrupts an allocation. So SIGTERM is blocked within the context, and a thread polls for a
    pending SIGTERM. Afterwards SIGTERM has its default action.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGTERM)
    over = threading.Event()
    thread = threading.Thread(
        target=_exit_if_pending, args=(over,), name="edl-loading", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGTERM)


def _exit_if_pending(over: threading.Event) -> None:
    while not over.wait(_POLL_S):
        if signal.SIGTERM in signal.sigpending():
            os._exit(EXIT_CODE)


class SigtermWatcher:
    """Calls `on_sigterm` once, on a separate thread, when the process receives SIGTERM."""

    def __init__(self, on_sigterm: Callable[[], object]) -> None:
        self._on_sigterm = on_sigterm
        self._pid = os.getpid()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._installed = False
        self._removed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="edl-sigterm", daemon=True)
        self._thread.start()

    def install(self) -> bool:
        """Installs the handler.

        Returns:
            False if nothing was installed, because the program has its own handler or this is not the
            main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        # None means a handler in C, such as PaddlePaddle's, which exits at once: replace it
        if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, None):
            return False
        previous = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        if previous != -1:
            # the pipe belongs to other code, such as asyncio: restore it and use only the handler
            signal.set_wakeup_fd(previous)
        signal.signal(signal.SIGTERM, self._handle)
        self._installed = True
        return True

    def remove(self) -> None:
        """Restores the default action of SIGTERM and ends the thread.

        Only the main thread can restore a signal handler. If another thread calls this, the handler
        stays in place, but SIGTERM then ends the process at once, like the default action.
        """
        if self._installed and threading.current_thread() is not threading.main_thread():
            self._removed.set()
            return
        if self._installed:
            self._installed = False
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._reset_wakeup()
        self._write(0)

    def _reset_wakeup(self) -> None:
        """Stops writes to the wake-up pipe, because its closed descriptor may soon belong to another file."""
        descriptor = signal.set_wakeup_fd(-1)
        if descriptor not in (-1, self._writing):
            signal.set_wakeup_fd(descriptor)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a forked child has no tasks to hand back
            os._exit(EXIT_CODE)
        self._write(number)

    def _write(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writing, bytes([number]))

    def _listen(self) -> None:
        while True:
            for number in os.read(self._reading, 64):
                if number == signal.SIGTERM:
                    if self._removed.is_set():
                        os._exit(EXIT_CODE)
                    self._on_sigterm()
                    return
                if number == 0:
                    os.close(self._reading)
                    os.close(self._writing)
                    return
