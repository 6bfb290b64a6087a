"""Accepts connections of an asyncio server: bounded in number, each wait for the peer with an end.

Who calls: `runtime.http_server` and `runtime.job_server`. TLS handshakes, heads and bodies of
requests are read by the event loop, so a slow peer holds a socket and no thread. aiohttp knows no
time limit for a head and no limit of connections; `GuardedConnection` stands in front of its
protocol for both.
"""

import asyncio
import errno
import logging
import resource
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from runtime.clock import monotonic_s
from runtime.connection_table import ConnectionTable
from runtime.drop_counts import Drop, DropCounts
from runtime.logs import keys
from runtime.settings import address
from runtime.tls import Certificates

log = logging.getLogger(__name__)

BACKLOG = 512
_ACCEPTED_AT_ONCE = 4
"""Connections accepted before the loop looks at the others again: so many new TLS handshakes, a
millisecond each, an open connection waits for at most."""
MAX_HEADERS = 32
MAX_FIELD_BYTES = 4096
"""Of one header, and of the request line."""
_MAX_HEAD_BYTES = 16 * 1024
"""Of a head that is not complete: it is in memory, and anybody may send one."""
_STRANGER_BYTES = 16 * 1024
_READ_BYTES = 256 * 1024
"""Received at once; asyncio's own number, with which a thousand strangers' first bytes are 200 MiB."""
_HEAD_END = b"\r\n\r\n"
_PAUSE_S = 0.5
"""Pause of accepting while the process has no file descriptor left."""
_TLS_END_S = 1.0
_TLS_BUFFER_BYTES = 32 * 1024
"""Of each connection; asyncio's 256 KiB make 500 silent connections 400 MiB."""
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


SSLProtocol.max_size = _TLS_BUFFER_BYTES


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one server for its peers; times in seconds."""

    max_connections: int
    """Connections; never more than half of the process's file descriptors."""
    max_per_address: int
    handshake_s: float
    """For the whole TLS handshake."""
    head_s: float
    """For the whole head of a request, from its first byte."""
    body_s: float
    """For the whole body of a request."""
    answer_s: float
    """For reading an answer that is larger than the buffers."""
    idle_s: float
    """For the first byte of the next request."""


class GuardedConnection(asyncio.Protocol):
    """A connection with its deadlines, in front of the protocol that speaks HTTP.

    Args:
        make_protocol: Creates that protocol, once the peer has passed the TLS handshake.
        table: Has this connection.
        bounds: The deadlines.
        drops: Counts the drops.
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
        """The newest bytes of a head that is not complete."""
        self.opening: asyncio.Task[None] | None = None
        """Opens the connection, until the end of the TLS handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)
        self._receive(_STRANGER_BYTES)
        self._protocol = self._make_protocol()
        self._protocol.connection_made(transport)
        self._wait(self._bounds.idle_s, None)

    def admit(self) -> None:
        """Notes that the peer may call: from now on its bytes are received in large pieces."""
        self._receive(_READ_BYTES)

    def data_received(self, data: bytes) -> None:
        """Passes bytes on; the first ones of a request start the deadline of its head."""
        if self._idle:
            self._idle = False
            self._wait(self._bounds.head_s, Drop.HEAD)
            self._head_bytes, self._head_tail = 0, b""
        if self._head_tail is not None:
            self._count_head(data, self._head_tail)
        if self._protocol is not None and self._head_bytes <= _MAX_HEAD_BYTES:
            self._protocol.data_received(data)

    def _count_head(self, data: bytes, tail: bytes) -> None:
        """Drops the connection when a head is too long; what is complete counts no further."""
        tail += data
        if _HEAD_END in tail:
            self._head_tail = None
            return
        self._head_bytes += len(data)
        self._head_tail = tail[1 - len(_HEAD_END) :]
        if self._head_bytes > _MAX_HEAD_BYTES:
            self.drop(Drop.HEAD)

    def eof_received(self) -> bool | None:
        """See `asyncio.Protocol`."""
        return None if self._protocol is None else self._protocol.eof_received()

    def pause_writing(self) -> None:
        """The peer does not read its answer: from now on it has a deadline."""
        if self._protocol is not None:
            self._protocol.pause_writing()
        self._answer_deadline = self._loop.call_later(self._bounds.answer_s, self.drop, Drop.ANSWER)

    def resume_writing(self) -> None:
        """The peer has read."""
        self._cancel_answer_deadline()
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._table.remove(self)
        self._cancel_deadline()
        self._cancel_answer_deadline()
        protocol, self._protocol = self._protocol, None
        self._transport = self.opening = (
            None  # no cycle: memory is free now, not at some collection
        )
        if protocol is not None:
            protocol.connection_lost(exc)

    def begin_body(self) -> None:
        """Notes that the head of a request is complete."""
        self._idle = False
        self._wait(self._bounds.body_s, Drop.BODY)

    def begin_answer(self) -> None:
        """Notes that the server works on an answer, which has no deadline."""
        self._idle = False
        self._cancel_deadline()
        self._table.begin_answer(self)

    def end_answer(self) -> None:
        """Notes that the answer is made; the next bytes belong to another request."""
        self._table.end_answer(self)
        self._idle = True
        if self._transport is not None and not self._transport.is_closing():
            self._wait(self._bounds.idle_s, None)

    def drop(self, reason: Drop | None) -> None:
        """Ends the connection at once, unless its end is under way; None counts nothing."""
        self._table.remove(self)
        if reason is not None:
            note(self._drops, reason)
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def _receive(self, max_bytes: int) -> None:
        """Sets how much is received at once; asyncio has no public name for it."""
        transport: Any = self._transport
        if hasattr(transport, "max_size"):
            transport.max_size = max_bytes

    def _wait(self, within_s: float, reason: Drop | None) -> None:
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


class Listener:
    """Accepts the connections of one socket on the running event loop.

    Args:
        listening: A bound socket that listens; the listener closes it.
        make_protocol: Creates the HTTP protocol of one connection.
        bounds: What peers get.
        drops: Counts what was dropped.
        certificates: TLS; None for plain HTTP.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        bounds: Bounds,
        drops: DropCounts,
        certificates: Certificates | None = None,
    ) -> None:
        self._socket, self._make_protocol = listening, make_protocol
        self._bounds, self._drops, self._certificates = bounds, drops, certificates
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = max(1, min(bounds.max_connections, descriptors // 2))
        self._table: ConnectionTable[GuardedConnection] = ConnectionTable(
            allowed, bounds.max_per_address
        )
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to accept."""
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Ends accepting and the handshakes that are under way; open connections stay."""
        self._loop.remove_reader(self._socket)
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connected, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    raise
                note(self._drops, Drop.FULL)
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_PAUSE_S, self.start)
                return
            self._admit(connected, peer[0])

    def _admit(self, connected: socket.socket, host: str) -> None:
        connection = GuardedConnection(self._make_protocol, self._table, self._bounds, self._drops)
        admission = self._table.add(connection, host)
        if admission.dropped is not None:
            admission.dropped.drop(Drop.FULL)
        if not admission.admitted:
            note(self._drops, Drop.FULL)
            connected.close()
            return
        unopened = [connected]
        connection.opening = self._loop.create_task(self._open(connection, unopened))
        self._opening.add(connection.opening)

        def close_unopened(task: asyncio.Task[None]) -> None:
            self._opening.discard(task)
            connection.opening = None  # no cycle, as in `connection_lost`
            for accepted in unopened:  # cancelled before its first step
                accepted.close()

        connection.opening.add_done_callback(close_unopened)

    async def _open(self, connection: GuardedConnection, unopened: list[socket.socket]) -> None:
        connected = unopened.pop()
        connected.setblocking(False)
        tls = self._certificates is not None
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                connected,
                ssl=self._certificates.current() if self._certificates is not None else None,
                ssl_handshake_timeout=self._bounds.handshake_s if tls else None,
                ssl_shutdown_timeout=_TLS_END_S if tls else None,
            )
        except OSError as error:
            error.__traceback__ = None  # as above: its frames hold asyncio's future, which holds it
            self._table.remove(connection)
            note(self._drops, Drop.HANDSHAKE)
        except asyncio.CancelledError:
            self._table.remove(connection)
            raise


class HttpLog(logging.LoggerAdapter[logging.Logger]):
    """aiohttp's log: what is not HTTP is counted, and does not become a trace for each request."""

    def __init__(self, drops: DropCounts) -> None:
        super().__init__(log)
        self._drops = drops

    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Logs an error of a handler; counts one of the peer."""
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):
            note(self._drops, Drop.MALFORMED)
        else:
            log.error(msg, *args, exc_info=error if isinstance(error, BaseException) else True)

    def debug(self, msg: object, *_: object, **kwargs: Any) -> None:  # noqa: ARG002 - as its base
        """Counts a request without a method of HTTP; aiohttp logs nothing else at this level."""
        if isinstance(kwargs.get("exc_info"), HttpProcessingError):
            note(self._drops, Drop.MALFORMED)


def connection_of(request: web.BaseRequest) -> GuardedConnection:
    """The connection of a request.

    Raises:
        ConnectionResetError: It has ended.
    """
    protocol = None if request.transport is None else request.transport.get_protocol()
    if not isinstance(protocol, GuardedConnection):
        raise ConnectionResetError
    return protocol


@contextmanager
def answering(request: web.BaseRequest) -> Iterator[None]:
    """While the block makes the answer to a request, its connection has no deadline.

    Raises:
        ConnectionResetError: The connection has ended.
    """
    connection = connection_of(request)
    connection.begin_answer()
    try:
        yield
    finally:
        connection.end_answer()


def bind(listen: str) -> socket.socket:
    """A socket that listens on an address, as in settings; port 0 selects a free one.

    Raises:
        OSError: The address cannot be used.
    """
    host, port = address(listen)
    is_dual = not host and socket.has_dualstack_ipv6()  # the pods of a cluster may have IPv6 alone
    family = socket.AF_INET6 if is_dual or ":" in host else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=is_dual
    )


def note(drops: DropCounts, reason: Drop) -> None:
    """Counts a dropped connection; logs one line for all those of an interval."""
    counts = drops.note(reason, monotonic_s())
    if counts:
        log.warning("connections dropped", extra=keys(**counts))
