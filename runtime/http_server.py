"""An HTTP server for a Flask application: an event loop reads requests, a few threads answer them.

Who calls: `runtime.serve`. The loop runs on its own thread. It reads each request completely, within
the deadlines of `runtime.connection`, before a thread works on it: a slow caller costs a socket and
the bytes it has sent. Decision 0077 has the alternatives.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from runtime import wsgi
from runtime.body_budget import BodyBudget
from runtime.clock import monotonic_s
from runtime.connection import Bounds, GuardedConnection, connection_of
from runtime.drop_counts import Drop
from runtime.http_options import http_options
from runtime.listener import Listener
from runtime.tls import Certificates
from runtime.web import PEER_CERTIFICATE, PORT, PROBES, STREAM, Port, WebApp

log = logging.getLogger(__name__)

STUCK_S = 30.0
"""A server is stuck if one request takes longer than this; callers give up after 2 to 10 s."""
_BODIES = 4
"""Bodies of the maximum length that may be in memory at once."""
_LARGE = 12
"""Bodies longer than the maximum length divided by this are handled one at a time."""
_BEAT_S = 1.0
_START_S = 60.0
_JOIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Service:
    """The application of a server, with the server's limits."""

    app: WebApp
    port: Port | None
    """The routes to serve; None for all."""
    threads: int
    """Number of requests answered at once."""
    max_body_bytes: int
    """A body of this length or longer gets 413."""


class HttpServer:
    """A server on one socket, from `start` to `stop`.

    Args:
        service: What it serves.
        listening: A bound socket.
        bounds: The limits for callers.
        certificates: TLS; None for plain HTTP.
        failed: Called on the server's thread if the server ends with an error.
    """

    def __init__(
        self,
        service: Service,
        listening: socket.socket,
        bounds: Bounds,
        *,
        certificates: Certificates | None,
        failed: Callable[[], None],
    ) -> None:
        self._service, self._listening = service, listening
        self._bounds, self._certificates = bounds, certificates
        self._failed = failed
        self._threads = ThreadPoolExecutor(service.threads, "answer")
        self._budget: BodyBudget[GuardedConnection] = BodyBudget(_BODIES * service.max_body_bytes)
        self._running: dict[int, float] = {}
        """Thread -> when it started to answer its request."""
        self._beat_s = monotonic_s()
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._large_turn: asyncio.Lock
        """Held by the request with a large body: 3 MiB of JSON may become 100 MiB of objects."""
        self._grace_s = 0.0
        self._draining = False
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def address(self) -> str:
        """The actual address, host:port."""
        host, port = self._listening.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        """Starts the server; returns when it accepts connections."""
        self._thread.start()
        self._started.wait(_START_S)

    def drain(self) -> None:
        """Closes each connection after its next answer.

        A caller that keeps connections, such as the API server, then connects to another replica. A
        request that it sends on an open connection during `stop` would be lost.
        """
        self._draining = True

    def stop(self, grace_s: float) -> None:
        """Stops accepting; requests in progress may take `grace_s` seconds."""
        if not self._thread.is_alive():
            return
        self._grace_s = grace_s
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(grace_s + _JOIN_S)

    def stuck(self, now_s: float) -> str:
        """Returns why the server must be restarted, or "".

        Args:
            now_s: The time on the monotonic clock.
        """
        return stuck_reason(now_s, self._beat_s, list(self._running.values()))

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.critical("server failed", exc_info=True)
            self._failed()
        finally:
            self._started.set()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._large_turn = asyncio.Lock()
        self._loop.set_exception_handler(_ignore_peers)
        drops = self._service.app.drops
        server = web.Server(
            self._handle, lingering_time=self._bounds.body_s, **http_options(self._bounds, drops)
        )
        listener = Listener(self._listening, server, self._bounds, drops, self._certificates)
        listener.start()
        self._beat()
        self._started.set()
        await self._stopping.wait()
        await listener.close()
        server.pre_shutdown()
        await server.shutdown(self._grace_s)

    def _beat(self) -> None:
        self._beat_s = monotonic_s()
        self._loop.call_later(_BEAT_S, self._beat)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = connection_of(request)
        connection.begin_body()
        connection.admit()  # from here on `_read` counts the bytes
        try:
            body, length = await self._read(request, connection)
            connection.begin_answer()
            tls = self._certificates is not None
            variables = wsgi.environment(request, body, length, tls=tls)
            variables[PORT] = self._service.port
            variables[PEER_CERTIFICATE] = request.get_extra_info("peercert")
            if (
                request.path in PROBES
            ):  # answered on the loop, so that busy threads do not delay them
                answer = wsgi.call(self._service.app, variables)
            else:
                is_large = len(body) > self._service.max_body_bytes // _LARGE
                async with self._large_turn if is_large else nullcontext():
                    answer = await self._on_thread(variables)
            if STREAM in variables and request.method == "GET":
                self._budget.release(connection)
                return await _send(request, answer, variables[STREAM])
        finally:
            self._budget.release(connection)
            connection.end_answer()
        headers = dict(answer.headers)
        response = web.Response(body=answer.body, status=answer.status, headers=headers)
        if self._draining:
            response.force_close()
        return response

    async def _read(
        self, request: web.BaseRequest, connection: GuardedConnection
    ) -> tuple[bytes, int]:
        """Reads the body of a request.

        Returns:
            The body and its length in bytes. For a body that is too long: at most its beginning,
            and a length that is at least the maximum.
        """
        max_bytes, length = self._service.max_body_bytes, request.content_length
        if length is not None and length >= max_bytes:
            return b"", length
        parts: list[bytes] = []
        length = 0
        while not request.content.at_eof() and length < max_bytes:
            part = await request.content.readany()
            parts.append(part)
            length += len(part)
            for dropped in self._budget.take(connection, len(part)):
                dropped.drop(Drop.BODIES)
        self._budget.complete(connection)
        return b"".join(parts), length

    async def _on_thread(self, variables: wsgi.Environment) -> wsgi.Answer:
        """Answers on a thread. If the caller gives up, this still waits for the thread, which uses the body."""
        work = self._threads.submit(self._answer, variables)
        answer = asyncio.wrap_future(work)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not (self._stopping.is_set() or work.cancel()):
                await asyncio.wait({answer})
            raise

    def _answer(self, variables: wsgi.Environment) -> wsgi.Answer:
        thread = threading.get_ident()
        self._running[thread] = monotonic_s()
        try:
            return wsgi.call(self._service.app, variables)
        finally:
            del self._running[thread]


async def _send(
    request: web.BaseRequest, answer: wsgi.Answer, parts: AsyncGenerator[bytes]
) -> web.StreamResponse:
    """Sends an answer part by part; the connection's deadline drops a peer that does not read."""
    headers = {name: value for name, value in answer.headers if name != "Content-Length"}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    async with aclosing(parts):
        with suppress(ConnectionError):  # the reader has disconnected
            async for part in parts:
                await response.write(part)
            await response.write_eof()
    return response


def stuck_reason(now_s: float, beat_s: float, begun_s: Sequence[float]) -> str:
    """Returns why a server must be restarted, or "".

    Args:
        now_s: The time on a monotonic clock.
        beat_s: When the server's event loop ran last.
        begun_s: When the requests in progress began.
    """
    if now_s - beat_s > STUCK_S:
        return f"the event loop has not run for {now_s - beat_s:.0f} s"
    longest_s = now_s - min(begun_s, default=now_s)
    return f"a request has been running for {longest_s:.0f} s" if longest_s > STUCK_S else ""


def _ignore_peers(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs errors of the loop, except those of sockets, which peers cause."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)
