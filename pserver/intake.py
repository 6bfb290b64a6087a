"""How many bytes of bodies may be on their way at one time: the others wait."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pserver.errors import BusyError

WAIT_S = 30.0


class Intake:
    """Of one loop. One body larger than all of it comes in alone."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Holds so many bytes; first come, first served.

        Raises:
            BusyError: There was no room for long.
        """
        await self._enter(size)
        try:
            yield
        finally:
            self.used -= size
            self._admit()

    async def _enter(self, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        self._admit()
        try:
            async with asyncio.timeout(WAIT_S):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.used -= size
            elif entry in self._waiting:
                self._waiting.remove(entry)
            self._admit()
            if isinstance(error, TimeoutError):
                raise BusyError("too much is on its way to this parameter server") from error
            raise

    def _admit(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if self.used and self.used + size > self._most:
                return
            self._waiting.popleft()
            if not turn.cancelled():
                self.used += size
                turn.set_result(None)
