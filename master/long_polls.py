"""Long polls of the rendezvous: calls wait here until there is an answer, and time is passed on."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from master.protocol import RendezvousPoll
from master.rendezvous import Rendezvous
from master.types import Json
from runtime.logs import keys

log = logging.getLogger(__name__)

_LEAST_PAUSE_S = 0.002


@dataclass(slots=True, eq=False)
class _WaitingPoll:
    """A call of the rendezvous that waits for an answer."""

    call: RendezvousPoll
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class LongPolls:
    """The waiting calls of one job's rendezvous; everything runs in one asyncio loop."""

    def __init__(self, rendezvous: Rendezvous, clock_s: Callable[[], float]) -> None:
        self._rendezvous = rendezvous
        self._clock_s = clock_s
        self._polls: set[_WaitingPoll] = set()
        self._changed = asyncio.Event()
        self._ended = False

    @property
    def waiting(self) -> int:
        """How many calls wait for an answer."""
        return len(self._polls)

    async def poll(self, call: RendezvousPoll) -> Json:
        """Answers a call, see the protocol: at once where there is news, else as soon as there is."""
        rendezvous = self._rendezvous
        rendezvous.call(call, self._clock_s())
        self._changed.set()
        self._publish()
        if call.wait_s and not rendezvous.has_answer(call) and not self._ended:
            await self._wait(call)
        return rendezvous.answer(call)

    def leave(self, trainer: str, incarnation: str) -> Json:
        """Excludes a member from later rounds, see the protocol."""
        self._rendezvous.leave(trainer, incarnation, self._clock_s())
        self._changed.set()
        self._publish()
        return {}

    def report(self) -> Json:
        """The round as the status contains it."""
        return self._rendezvous.report()

    async def run(self) -> None:
        """Calls the rendezvous whenever something is due, until it is cancelled."""
        while True:
            next_s = self._rendezvous.next_s()
            pause_s = None if next_s is None else max(_LEAST_PAUSE_S, next_s - self._clock_s())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):  # `wait_for` of 3.11 may lose a cancellation
                    await self._changed.wait()
            self._changed.clear()
            self._rendezvous.tick(self._clock_s())
            self._publish()

    def end(self) -> None:
        """Answers all waiting calls; later ones do not wait."""
        self._ended = True
        for poll in self._polls:
            poll.woken.set()

    async def _wait(self, call: RendezvousPoll) -> None:
        poll = _WaitingPoll(call)
        self._polls.add(poll)
        try:
            async with asyncio.timeout(call.wait_s):
                await poll.woken.wait()
        except TimeoutError:
            return
        except asyncio.CancelledError:
            now_s = self._clock_s()
            self._rendezvous.disconnected(call.trainer, call.incarnation, now_s)
            self._changed.set()
            raise
        finally:
            self._polls.discard(poll)

    def _publish(self) -> None:
        """Wakes the calls that have an answer now, and logs the events of the rendezvous."""
        for poll in self._polls:
            if self._rendezvous.has_answer(poll.call):
                poll.woken.set()
        events, self._rendezvous.events = self._rendezvous.events, []
        for event, fields in events:
            log.info(event, extra=keys(**fields))
