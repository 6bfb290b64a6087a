"""Accepts the connections of an asyncio server, and bounds their number.

Who calls: `runtime.http_server` and `runtime.job_server`. The event loop does TLS handshakes and reads
requests, so a slow peer holds a socket and no thread.
"""

import asyncio
import errno
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable

from runtime.connection import Bounds, GuardedConnection, count_drop
from runtime.connection_table import ConnectionTable
from runtime.drop_counts import Drop, DropCounts
from runtime.settings import address
from runtime.tls import Certificates

BACKLOG = 512
"""Connections that wait in the kernel until the server accepts them."""
_ACCEPTED_AT_ONCE = 4
"""Connections accepted before the loop serves the open ones again. A TLS handshake takes a millisecond."""
_PAUSE_S = 0.5
"""Accepting pauses this long when the process has no file descriptor left."""
_TLS_END_S = 1.0
"""Time limit for the end of a TLS connection."""
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def bind(listen: str, flag: str = "--listen") -> socket.socket:
    """Returns a socket that listens.

    Args:
        listen: Address and port, as in settings; port 0 selects a free port.
        flag: The setting that chooses the address, for the error.

    Raises:
        OSError: the address cannot be used; the text names the address and `flag`.
    """
    host, port = address(listen)
    is_dual = not host and socket.has_dualstack_ipv6()  # pods may have IPv6 addresses only
    family = socket.AF_INET6 if is_dual or ":" in host else socket.AF_INET
    try:
        return socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=is_dual
        )
    except OSError as error:
        text = f"cannot listen on {listen}: {error.strerror}; choose another {flag}"
        raise OSError(text) from error


class _ServerTls(SSLProtocol):
    """TLS of one connection, with a small read buffer.

    With asyncio's buffer of 256 KiB, 500 silent connections take 400 MiB.
    """

    max_size = 32 * 1024


class Listener:
    """Accepts the connections of one socket on the running event loop.

    Args:
        listening: A socket that listens; the listener closes it.
        make_protocol: Creates the HTTP protocol of one connection.
        bounds: The limits for peers.
        drops: Counts dropped connections.
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
        """Starts to accept connections."""
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Stops accepting, and ends handshakes in progress; open connections stay."""
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
                accepted, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    raise
                count_drop(self._drops, Drop.FULL)
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_PAUSE_S, self.start)
                return
            self._admit(accepted, peer[0])

    def _admit(self, accepted: socket.socket, host: str) -> None:
        connection = GuardedConnection(self._make_protocol, self._table, self._bounds, self._drops)
        admission = self._table.add(connection, host)
        if admission.dropped is not None:
            admission.dropped.drop(Drop.FULL)
        if not admission.admitted:
            count_drop(self._drops, Drop.FULL)
            accepted.close()
            return
        unopened = [accepted]
        connection.opening = self._loop.create_task(self._open(connection, unopened))
        self._opening.add(connection.opening)

        def close_unopened(task: asyncio.Task[None]) -> None:
            self._opening.discard(task)
            connection.opening = None  # breaks a cycle, like `GuardedConnection.connection_lost`
            for never_opened in unopened:  # the task was cancelled before its first step
                never_opened.close()

        connection.opening.add_done_callback(close_unopened)

    async def _open(self, connection: GuardedConnection, unopened: list[socket.socket]) -> None:
        accepted = unopened.pop()
        accepted.setblocking(False)
        try:
            if self._certificates is None:
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
            else:
                await self._open_tls(connection, accepted, self._certificates.current())
        except OSError as error:
            error.__traceback__ = None  # breaks a cycle: its frames hold this error's future
            self._table.remove(connection)
            count_drop(self._drops, Drop.HANDSHAKE)
        except asyncio.CancelledError:
            self._table.remove(connection)
            raise

    async def _open_tls(
        self, connection: GuardedConnection, accepted: socket.socket, context: ssl.SSLContext
    ) -> None:
        """Opens a connection with TLS; returns after the handshake.

        `connect_accepted_socket` with `ssl` does the same, but allows no other class than `SSLProtocol`.
        """
        handshake: asyncio.Future[None] = self._loop.create_future()
        tls = _ServerTls(
            self._loop,
            connection,
            context,
            handshake,
            server_side=True,
            ssl_handshake_timeout=self._bounds.handshake_s,  # type: ignore[arg-type] # a float is allowed
            ssl_shutdown_timeout=_TLS_END_S,
        )
        transport, _ = await self._loop.connect_accepted_socket(lambda: tls, accepted)
        try:
            await handshake
        except BaseException:
            transport.abort()
            raise
