"""Long polls of the rendezvous: calls wait here until there is news, and time passes for it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from master.rendezvous import Rendezvous
from runtime.logs import keys

Json = dict[str, Any]
log = logging.getLogger(__name__)

_LEAST_PAUSE_S = 0.002


@dataclass(slots=True, eq=False)
class _Waiter:
    call: Json
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class Meetings:
    """Of one job; everything runs in one asyncio loop."""

    def __init__(self, rendezvous: Rendezvous, clock_s: Callable[[], float]) -> None:
        self._rendezvous = rendezvous
        self._clock_s = clock_s
        self._waiters: set[_Waiter] = set()
        self._changed = asyncio.Event()
        self._ended = False

    @property
    def waiting(self) -> int:
        """How many calls wait for news."""
        return len(self._waiters)

    async def meet(self, call: Json) -> Json:
        """See the protocol: answers at once where there is news, else when there is some."""
        rendezvous = self._rendezvous
        rendezvous.call(call, self._clock_s())
        self._changed.set()
        self._tell()
        if call["wait_s"] and not rendezvous.due(call) and not self._ended:
            await self._wait(call)
        return rendezvous.answer(call)

    def leave(self, trainer: str, incarnation: str) -> Json:
        """See the protocol."""
        self._rendezvous.leave(trainer, incarnation, self._clock_s())
        self._changed.set()
        self._tell()
        return {}

    def report(self) -> Json:
        """For the status."""
        return self._rendezvous.report()

    async def run(self) -> None:
        """Time passes."""
        while True:
            next_s = self._rendezvous.next_s()
            pause_s = None if next_s is None else max(_LEAST_PAUSE_S, next_s - self._clock_s())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):  # `wait_for` of 3.11 may lose a cancellation
                    await self._changed.wait()
            self._changed.clear()
            self._rendezvous.tick(self._clock_s())
            self._tell()

    def end(self) -> None:
        """Nobody waits any more."""
        self._ended = True
        for waiter in self._waiters:
            waiter.woken.set()

    async def _wait(self, call: Json) -> None:
        waiter = _Waiter(call)
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(call["wait_s"]):
                await waiter.woken.wait()
        except TimeoutError:
            return
        except asyncio.CancelledError:
            now_s = self._clock_s()
            self._rendezvous.hung_up(call["trainer"], call["incarnation"], now_s)
            self._changed.set()
            raise
        finally:
            self._waiters.discard(waiter)

    def _tell(self) -> None:
        """Wakes those who wait for what is known now, and says in the log what happened."""
        for waiter in self._waiters:
            if self._rendezvous.due(waiter.call):
                waiter.woken.set()
        news, self._rendezvous.news = self._rendezvous.news, []
        for event, told in news:
            log.info(event, extra=keys(**told))
