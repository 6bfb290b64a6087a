"""Waits for torch's operations in short intervals, so that a wait ends when the round ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from edl import clock
from edl.collective.transport import REPORT_AFTER_S, OnWait
from edl.errors import EdlError, RoundOver, one_line

T = TypeVar("T")

_TICK = timedelta(milliseconds=10)
"""Longest delay until the end of a round ends a wait. The end of the operation ends it at once."""
_TICK_S = _TICK.total_seconds()


class News(Protocol):
    """Tells whether a round is over; `edl.collective.Interrupt` is an example."""

    @property
    def is_set(self) -> bool:
        """Whether the round is over."""
        ...


class Waiting:
    """Interruptible waits for operations and for blocking calls; used by one thread."""

    def __init__(self, news: News, on_wait: OnWait | None = None) -> None:
        """Does not wait yet.

        Args:
            news: Tells when the round is over.
            on_wait: Called in the same way as by `edl.collective.Ring.connect`.
        """
        self._news = news
        self.on_wait = on_wait

    @property
    def is_over(self) -> bool:
        """Whether the round is over."""
        return self._news.is_set

    def check(self) -> None:
        """Raises if the round is over.

        Raises:
            RoundOver: The round is over.
        """
        if self._news.is_set:
            raise RoundOver("members of this round are lost")

    def wait_for(self, work: Any) -> None:
        """Waits until a `torch.distributed.Work` is done.

        Raises:
            RoundOver: The operation failed, or the round is over; the operation may still run then.
        """

        def is_done() -> bool:
            try:
                work.wait(_TICK)
            except RuntimeError:
                if not work.is_completed():
                    return False
                _raise_failure(work)
            return True

        self._repeat(is_done)

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function that may block. It runs on a new thread, which may outlive this call.

        Raises:
            RoundOver: The function raised an error, or the round is over.
        """
        self.check()
        results: list[T] = []
        errors: list[BaseException] = []
        ended = threading.Event()

        def run() -> None:
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001 - raised again on the calling thread
                errors.append(error)
            ended.set()

        threading.Thread(target=run, name="edl-torch-call", daemon=True).start()
        self._repeat(lambda: ended.wait(_TICK_S))
        if errors:
            raise _as_round_over(errors[0]) from errors[0]
        return results[0]

    def _repeat(self, is_done: Callable[[], bool]) -> None:
        since_s, reported = clock.monotonic_s(), False
        try:
            while True:
                self.check()
                if is_done():
                    return
                if not reported and clock.monotonic_s() - since_s >= REPORT_AFTER_S:
                    reported = True
                    if self.on_wait is not None:
                        self.on_wait(since_s)
        finally:
            if reported and self.on_wait is not None:
                self.on_wait(None)


def _raise_failure(work: Any) -> None:
    """Raises an error if an ended operation has failed; its last wait may only have timed out."""
    try:
        work.wait(_TICK)
    except RuntimeError as error:
        raise _as_round_over(error) from error


def _as_round_over(error: BaseException) -> EdlError:
    return error if isinstance(error, EdlError) else RoundOver(one_line(error))
