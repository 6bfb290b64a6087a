"""Waiting for what other threads are about to do, by facts; limits only end a hang."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Any, ParamSpec, TypeVar

from runtime import clock

P = ParamSpec("P")
T = TypeVar("T")

LIMIT_S = 60.0


def until(fact: Callable[[], object]) -> None:
    """Waits until `fact()` is true; AssertionError if it does not become so."""
    end = clock.monotonic_s() + LIMIT_S
    while not fact():
        assert clock.monotonic_s() < end, f"still false after {LIMIT_S} s"
        time.sleep(0.002)


async def until_in_loop(fact: Callable[[], object]) -> None:
    """Waits until `fact()` is true, which the running loop makes so; TimeoutError if it does not."""
    async with asyncio.timeout(LIMIT_S):
        while not fact():  # noqa: ASYNC110 - what makes it so knows no event of tests
            await asyncio.sleep(0.001)


class CallersThread(Executor):
    """A pool without threads: each call has ended when `submit` returns, always in the same order."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs the call."""
        ended: Future[T] = Future()
        try:
            ended.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future has it, as in a pool
            ended.set_exception(error)
        return ended

    def settle(self) -> None:
        """Nothing to wait for."""


class Writers(ThreadPoolExecutor):
    """The real pool of writes, and a way to wait for all that were begun.

    Virtual time passes in no time at all: a write on a thread would seem to take seconds of it.
    """

    def __init__(self, threads: int = 8) -> None:
        super().__init__(threads)
        self._begun: list[Future[Any]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As the pool does."""
        begun = super().submit(fn, *args, **kwargs)
        self._begun.append(begun)
        return begun

    def settle(self) -> None:
        """Waits until every write that was begun has ended."""
        assert not wait(self._begun, LIMIT_S).not_done
        self._begun.clear()
