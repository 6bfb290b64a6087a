"""One connection of an asyncio server: every wait for its peer has a deadline.

`GuardedConnection` stands between asyncio's transport and aiohttp's HTTP protocol, because aiohttp
has no deadline for the head of a request. `runtime.listener` creates the connections.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web
from typing_extensions import override

from runtime.clock import monotonic_s
from runtime.connection_table import ConnectionTable
from runtime.drop_counts import Drop, DropCounts
from runtime.logs import keys

log = logging.getLogger(__name__)

_MAX_HEAD_BYTES = 16 * 1024
"""Limit for an incomplete head: it stays in memory, and any peer may send one."""
_HEAD_END = b"\r\n\r\n"
_STRANGER_BYTES = 16 * 1024
"""Number of bytes received at once before the server knows the caller."""
_READ_BYTES = 256 * 1024
"""Number of bytes received at once afterwards, asyncio's default. With this number, a thousand
unknown callers would fill 200 MiB."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one server for its peers; times in seconds."""

    max_connections: int
    """Maximum number of open connections; at most half of the process's file descriptors are
    used."""
    max_per_address: int
    """Maximum number of open connections of one IP address."""
    handshake_s: float
    """Time limit for the whole TLS handshake."""
    head_s: float
    """Time limit for the whole head of a request, from its first byte."""
    body_s: float
    """Time limit for the whole body of a request."""
    answer_s: float
    """Time limit for the peer to read an answer that is larger than the buffers."""
    idle_s: float
    """Time limit for the first byte of the next request."""


class GuardedConnection(asyncio.Protocol):
    """A connection with deadlines, in front of the protocol that speaks HTTP.

    Args:
        make_protocol: Creates the HTTP protocol once the TLS handshake has succeeded.
        table: The server's connections, including this one.
        bounds: The deadlines.
        drops: Counts dropped connections.
    """

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        table: "ConnectionTable[GuardedConnection]",
        bounds: Bounds,
        drops: DropCounts,
    ) -> None:
        self._make_protocol, self._table = make_protocol, table
        self._bounds, self._drops = bounds, drops
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._answer_deadline: asyncio.TimerHandle | None = None
        self._idle = True
        self._head_bytes = 0
        self._head_tail: bytes | None = None
        """The last bytes of a head that is still incomplete."""
        self.opening: asyncio.Task[None] | None = None
        """The task that opens the connection, until the TLS handshake ends."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._set_read_bytes(_STRANGER_BYTES)
        self._protocol = self._make_protocol()
        self._protocol.connection_made(transport)
        self._start_deadline(self._bounds.idle_s, None)

    def admit(self) -> None:
        """Notes that the caller may call: from now on bytes are received in large pieces."""
        self._set_read_bytes(_READ_BYTES)

    @override
    def data_received(self, data: bytes) -> None:
        """Passes bytes on; the first bytes of a request start the deadline of its head."""
        if self._idle:
            self._idle = False
            self._start_deadline(self._bounds.head_s, Drop.HEAD)
            self._head_bytes, self._head_tail = 0, b""
        if self._head_tail is not None:
            self._count_head(data, self._head_tail)
        if self._protocol is not None and self._head_bytes <= _MAX_HEAD_BYTES:
            self._protocol.data_received(data)

    def _count_head(self, data: bytes, tail: bytes) -> None:
        """Drops the connection if its head is too long; counts nothing after the end of the head."""
        tail += data
        if _HEAD_END in tail:
            self._head_tail = None
            return
        self._head_bytes += len(data)
        self._head_tail = tail[1 - len(_HEAD_END) :]
        if self._head_bytes > _MAX_HEAD_BYTES:
            self.drop(Drop.HEAD)

    @override
    def eof_received(self) -> bool | None:
        return None if self._protocol is None else self._protocol.eof_received()

    @override
    def pause_writing(self) -> None:
        """Starts the deadline for reading the answer: the peer reads too slowly."""
        if self._protocol is not None:
            self._protocol.pause_writing()
        self._answer_deadline = self._loop.call_later(self._bounds.answer_s, self.drop, Drop.ANSWER)

    @override
    def resume_writing(self) -> None:
        """Cancels the deadline for reading the answer."""
        self._cancel_answer_deadline()
        if self._protocol is not None:
            self._protocol.resume_writing()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self)
        self._cancel_deadline()
        self._cancel_answer_deadline()
        protocol, self._protocol = self._protocol, None
        # Break reference cycles: they would keep the buffers until the next garbage collection.
        self._transport = self.opening = None
        if protocol is not None:
            protocol.connection_lost(exc)

    def begin_body(self) -> None:
        """Notes that the head of a request is complete; starts the deadline of its body."""
        self._idle = False
        self._start_deadline(self._bounds.body_s, Drop.BODY)

    def begin_answer(self) -> None:
        """Notes that the server works on an answer, which has no deadline."""
        self._idle = False
        self._cancel_deadline()
        self._table.begin_answer(self)

    def end_answer(self) -> None:
        """Notes that the answer is ready; the next bytes belong to another request."""
        self._table.end_answer(self)
        self._idle = True
        if self._transport is not None and not self._transport.is_closing():
            self._start_deadline(self._bounds.idle_s, None)

    def drop(self, reason: Drop | None) -> None:
        """Ends the connection at once, unless it is ending already; a drop without a reason is not counted."""
        self._table.remove(self)
        if reason is not None:
            count_drop(self._drops, reason)
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def _set_read_bytes(self, max_bytes: int) -> None:
        """Sets how many bytes are received at once; asyncio has no documented way to do that."""
        transport: Any = self._transport
        if hasattr(transport, "max_size"):
            transport.max_size = max_bytes

    def _start_deadline(self, within_s: float, reason: Drop | None) -> None:
        self._cancel_deadline()
        self._deadline = self._loop.call_later(within_s, self.drop, reason)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_answer_deadline(self) -> None:
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
            self._answer_deadline = None


def connection_of(request: web.BaseRequest) -> GuardedConnection:
    """Returns the connection of a request.

    Raises:
        ConnectionResetError: the connection has ended.
    """
    protocol = None if request.transport is None else request.transport.get_protocol()
    if not isinstance(protocol, GuardedConnection):
        raise ConnectionResetError
    return protocol


@contextmanager
def answering(request: web.BaseRequest) -> Iterator[None]:
    """Suspends the deadline of a request's connection while the block makes the answer.

    Raises:
        ConnectionResetError: the connection has ended.
    """
    connection = connection_of(request)
    connection.begin_answer()
    try:
        yield
    finally:
        connection.end_answer()


def count_drop(drops: DropCounts, reason: Drop) -> None:
    """Counts a dropped connection; logs one line for all drops of an interval."""
    counts = drops.note(reason, monotonic_s())
    if counts:
        log.warning("connections dropped", extra=keys(**counts))
