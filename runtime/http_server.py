"""An HTTP server for a Flask application: an event loop reads, a few threads answer.

Who calls: `runtime.serve`. The loop has a thread of its own. It reads each request whole, within
the deadlines of `runtime.listener`, before a thread works on it: a slow caller costs a socket and
what it has sent. docs/decisions/0025 has the alternatives.
"""

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from aiohttp import web
from flask import Flask

from runtime.body_budget import BodyBudget
from runtime.clock import monotonic_s
from runtime.drop_counts import Drop, DropCounts
from runtime.listener import (
    MAX_FIELD_BYTES,
    MAX_HEADERS,
    Bounds,
    GuardedConnection,
    HttpLog,
    Listener,
    connection_of,
)
from runtime.tls import Certificates
from runtime.web import PEER_CERTIFICATE, PORT, PROBES, STREAM, Port

log = logging.getLogger(__name__)

STUCK_S = 30.0
"""A request that is worked on for longer shows a hang: callers give up after 2 to 10 s."""
_BODIES = 4
"""Number of bodies of the greatest length that fit into memory at once."""
_LARGE = 12
"""Bodies longer than the greatest length divided by this are handled one at a time."""
_BEAT_S = 1.0
_START_S = 60.0
_JOIN_S = 5.0


_Environ = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of an application."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Service:
    """The application of a server, with the server's limits."""

    app: Flask
    port: Port | None
    """Which routes; None for all."""
    threads: int
    """Requests answered at once."""
    max_body_bytes: int
    """A body of this length gets 413."""


class HttpServer:
    """A server on one socket, from `start` to `stop`.

    Args:
        service: What it serves.
        listening: A bound socket.
        bounds: What callers get.
        drops: Counts dropped connections.
        certificates: TLS; None for plain HTTP.
        failed: Called, on the server's thread, if the server ends by an error.
    """

    def __init__(
        self,
        service: Service,
        listening: socket.socket,
        bounds: Bounds,
        drops: DropCounts,
        *,
        certificates: Certificates | None,
        failed: Callable[[], None],
    ) -> None:
        self._service, self._listening = service, listening
        self._bounds, self._drops, self._certificates = bounds, drops, certificates
        self._failed = failed
        self._threads = ThreadPoolExecutor(service.threads, "answer")
        self._budget: BodyBudget[GuardedConnection] = BodyBudget(_BODIES * service.max_body_bytes)
        self._running: dict[int, float] = {}
        """Thread -> when it began the request that it works on."""
        self._beat_s = monotonic_s()
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._large_turn: asyncio.Lock
        """Of requests with large bodies: three MiB of JSON may become a hundred as objects."""
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
        """Returns when the server accepts connections."""
        self._thread.start()
        self._started.wait(_START_S)

    def drain(self) -> None:
        """Ends each connection with its next answer.

        A caller that keeps connections, as the API server does, then opens its next one to another
        replica. On one that it uses in the moment of `stop` its request would be lost.
        """
        self._draining = True

    def stop(self, grace_s: float) -> None:
        """Ends accepting; requests that are being answered may take `grace_s`."""
        if not self._thread.is_alive():
            return
        self._grace_s = grace_s
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(grace_s + _JOIN_S)

    def stuck(self, now_s: float) -> str:
        """Why the server must be restarted, "" if it need not.

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
        server = web.Server(
            self._handle,
            handler_cancellation=True,  # nobody waits for what a caller has given up
            access_log=None,
            logger=HttpLog(self._drops),
            keepalive_timeout=self._bounds.idle_s,
            lingering_time=self._bounds.body_s,
            auto_decompress=False,
            max_line_size=MAX_FIELD_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=MAX_HEADERS,
        )
        listener = Listener(self._listening, server, self._bounds, self._drops, self._certificates)
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
        connection.admit()  # its body is counted from here on
        try:
            body, length = await self._read(request, connection)
            connection.begin_answer()
            variables = _environ(request, body, length, tls=self._certificates is not None)
            variables[PORT] = self._service.port
            variables[PEER_CERTIFICATE] = request.get_extra_info("peercert")
            if request.path in PROBES:
                answer = _call(self._service.app, variables)
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
        """The body and its length; of one that is too long at most the beginning, and a length."""
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

    async def _on_thread(self, variables: _Environ) -> _Answer:
        """Has a thread answer; where the caller gives up, this still waits for the thread, which has the body."""
        work = self._threads.submit(self._answer, variables)
        answer = asyncio.wrap_future(work)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not (self._stopping.is_set() or work.cancel()):
                await asyncio.wait({answer})
            raise

    def _answer(self, variables: _Environ) -> _Answer:
        thread = threading.get_ident()
        self._running[thread] = monotonic_s()
        try:
            return _call(self._service.app, variables)
        finally:
            del self._running[thread]


async def _send(
    request: web.BaseRequest, answer: _Answer, parts: AsyncGenerator[bytes]
) -> web.StreamResponse:
    """Sends an answer part by part; a peer that does not read is dropped by its connection."""
    headers = {name: value for name, value in answer.headers if name != "Content-Length"}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    async with aclosing(parts):
        with suppress(ConnectionError):  # the reader has gone
            async for part in parts:
                await response.write(part)
            await response.write_eof()
    return response


def _environ(request: web.BaseRequest, body: bytes, content_length: int, *, tls: bool) -> _Environ:
    """The variables of a request for a Flask application (PEP 3333).

    Args:
        request: The request.
        body: Its body, or the beginning of it.
        content_length: Length of the body in bytes; longer than `body` where that was too long.
        tls: Whether the connection is secured.
    """
    url = request.rel_url
    host, _, port = request.host.rpartition(":")
    variables: _Environ = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(url.raw_path).decode("latin-1"),
        "QUERY_STRING": url.raw_query_string,
        "CONTENT_LENGTH": str(content_length),
        "SERVER_NAME": host or request.host,
        "SERVER_PORT": port if port.isdecimal() else ("443" if tls else "80"),
        "SERVER_PROTOCOL": f"HTTP/{request.version.major}.{request.version.minor}",
        "REMOTE_ADDR": request.remote or "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if tls else "http",
        "wsgi.input": BytesIO(body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        key = name.upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            variables[key] = value
        elif key not in {"CONTENT_LENGTH", "TRANSFER_ENCODING"}:
            earlier = variables.get(f"HTTP_{key}")
            variables[f"HTTP_{key}"] = value if earlier is None else f"{earlier},{value}"
    return variables


def _call(app: Flask, variables: _Environ) -> _Answer:
    """Calls the application and collects its answer; an error of it is its own 500."""
    begun: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _error: Any = None) -> Any:
        begun.append((status, headers))

    parts = app(variables, start_response)
    try:
        body = b"".join(parts)
    finally:
        close = getattr(parts, "close", None)
        if close is not None:
            close()
    status, headers = begun[-1]
    return _Answer(int(status.split(" ", 1)[0]), headers, body)


def stuck_reason(now_s: float, beat_s: float, begun_s: Sequence[float]) -> str:
    """Why a server must be restarted, "" if it need not.

    Args:
        now_s: The time on a monotonic clock.
        beat_s: When its event loop ran last.
        begun_s: When it began the requests that it works on.
    """
    if now_s - beat_s > STUCK_S:
        return f"the event loop has not run for {now_s - beat_s:.0f} s"
    longest_s = now_s - min(begun_s, default=now_s)
    return f"a request takes {longest_s:.0f} s already" if longest_s > STUCK_S else ""


def _ignore_peers(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Errors of a socket are the peer's; others are logged."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)
