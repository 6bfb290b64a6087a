"""Waits for work of torch without blocking inside it: the end of the round ends the wait."""

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
"""How late news may end a wait. The end of the work ends it at once."""
_TICK_S = _TICK.total_seconds()


class News(Protocol):
    """What ends waits; `edl.collective.Interrupt` is one."""

    @property
    def is_set(self) -> bool:
        """Whether the round is over."""
        ...


class Waiting:
    """An interruptible wait for works and for calls that block; for one thread."""

    def __init__(self, news: News, on_wait: OnWait | None = None) -> None:
        """Waits for nothing yet.

        Args:
            news: Set, on any thread, when the round is over.
            on_wait: As in `edl.collective.Ring.connect`.
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
            RoundOver: It is.
        """
        if self._news.is_set:
            raise RoundOver("members of this round are lost")

    def wait_for(self, work: Any) -> None:
        """Waits until a `torch.distributed.Work` is done.

        Raises:
            RoundOver: It failed, or the round is over: the work may still be under way then.
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
        """Calls a function that may block, on a thread of its own, which may outlive the call.

        Raises:
            RoundOver: The function raised something, or the round is over.
        """
        self.check()
        results: list[T] = []
        errors: list[BaseException] = []
        ended = threading.Event()

        def run() -> None:
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001 - raised where it was called
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
    """Raises if a work that is done has failed; the wait before may have ended just before it."""
    try:
        work.wait(_TICK)
    except RuntimeError as error:
        raise _as_round_over(error) from error


def _as_round_over(error: BaseException) -> EdlError:
    return error if isinstance(error, EdlError) else RoundOver(one_line(error))
