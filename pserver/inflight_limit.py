"""Limits the bytes of requests in flight: further requests wait until others are done."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pserver.errors import BusyError

WAIT_S = 30.0
"""How long a request waits before it is refused as busy."""


class InflightLimit:
    """A first-come, first-served limit of bytes, used by one event loop.

    A body larger than the limit is admitted alone.
    """

    def __init__(self, max_bytes: int) -> None:
        self._most = max_bytes
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[None]:
        """Reserves bytes for the duration of the block; waits until they are available.

        Raises:
            BusyError: The bytes were not available within `WAIT_S`.
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
                raise BusyError("too many bytes are in flight at this parameter server") from error
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
