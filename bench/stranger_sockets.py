"""Connections of strangers to one server: some drip, some stop in a handshake, some are silent.

They come from eight other addresses of this machine, and are opened anew 5 s after the server has
ended them. Used by `bench.strangers`.
"""

import asyncio
import ssl
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from threading import Event, Thread
from time import perf_counter
from typing import Self

from bench.startup import STARTED_S

_ADDRESSES = tuple(f"127.0.0.{number}" for number in range(2, 10))
_DRIP_S = 1.0
_REOPEN_S = 5.0
_CONNECT_S = 3.0
"""A server whose queue of new connections is full answers no longer."""
_LOOK_S = 0.1

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Kind(StrEnum):
    """The behaviour of a stranger."""

    DRIPPING = "dripping"
    """It sends a byte a second."""
    HALF_OPEN = "half_open"
    """It sends the beginning of a handshake."""
    IDLE = "idle"
    """It says nothing."""


@dataclass(frozen=True, slots=True)
class Approach:
    """How strangers of one kind begin."""

    port: int
    begun: bytes = b""
    """Sent at once."""
    tls: ssl.SSLContext | None = None


class Strangers:
    """Opens slow and silent connections in a separate thread, within the block."""

    def __init__(self, approaches: Mapping[Kind, Approach], counts: Mapping[Kind, int]) -> None:
        """Opens nothing yet.

        Args:
            approaches: By kind; there are no strangers of other kinds.
            counts: How many there are of each kind.
        """
        self._approaches = approaches
        self._kinds = [kind for kind in approaches for _ in range(counts[kind])]
        self._ready = Event()
        self._untried = len(self._kinds)
        self._loop: asyncio.AbstractEventLoop
        self._all: asyncio.Future[list[None]]
        self._since_s: dict[int, float] = {}
        """Stranger -> when its open connection was opened."""
        self._ended_s: dict[int, float] = {}
        """Stranger -> the longest time after which the server has ended one of its connections."""
        self.reopened = 0
        """Connections that were opened again after the server had ended them."""
        self._thread = Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        """Returns when all have tried to connect once."""
        self._thread.start()
        self._ready.wait(STARTED_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Closes them."""
        self._loop.call_soon_threadsafe(self._all.cancel)
        self._thread.join(STARTED_S)

    def await_ends(self, kinds: Collection[Kind], within_s: float) -> None:
        """Waits until the server has ended a connection of each stranger of these kinds."""
        until_s = perf_counter() + within_s
        pause = Event()
        awaited = {number for number, kind in enumerate(self._kinds) if kind in kinds}
        while awaited.difference(self._ended_s.copy()) and perf_counter() < until_s:
            pause.wait(_LOOK_S)

    def longest_s(self, kinds: Collection[Kind]) -> float:
        """How long the longest connection of these kinds was open, or has been so far; in seconds."""
        now_s = perf_counter()
        open_s = {number: now_s - since_s for number, since_s in self._since_s.copy().items()}
        spans_s = (
            max(open_s.get(number, 0.0), self._ended_s.get(number, 0.0))
            for number, kind in enumerate(self._kinds)
            if kind in kinds
        )
        return max(spans_s, default=0.0)

    async def _run(self) -> None:
        tasks = [
            asyncio.create_task(self._bother(number, kind))
            for number, kind in enumerate(self._kinds)
        ]
        self._loop, self._all = asyncio.get_running_loop(), asyncio.gather(*tasks)
        with suppress(asyncio.CancelledError):
            await self._all

    async def _bother(self, number: int, kind: Kind) -> None:
        streams = await self._open(number, kind)
        self._untried -= 1
        if not self._untried:
            self._ready.set()
        while True:
            if streams is not None:
                await self._hold(number, kind, streams)
            await asyncio.sleep(_REOPEN_S)
            streams = await self._open(number, kind)
            self.reopened += streams is not None

    async def _open(self, number: int, kind: Kind) -> _Streams | None:
        approach = self._approaches[kind]
        source = _ADDRESSES[number % len(_ADDRESSES)], 0
        with suppress(OSError):  # also a time-out
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.open_connection(
                    "127.0.0.1", approach.port, local_addr=source, ssl=approach.tls
                )
        return None

    async def _hold(self, number: int, kind: Kind, streams: _Streams) -> None:
        """Keeps a connection until the server ends it."""
        reader, writer = streams
        self._since_s[number] = perf_counter()
        try:
            writer.write(self._approaches[kind].begun)
            with suppress(OSError):
                await (_drip(reader, writer) if kind is Kind.DRIPPING else reader.read())
            span_s = perf_counter() - self._since_s[number]
            self._ended_s[number] = max(span_s, self._ended_s.get(number, 0.0))
        finally:
            del self._since_s[number]
            writer.close()


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends a byte a second, until the server has ended the connection."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRIP_S):
                await reader.read()
                return
        writer.write(b"1")
