"""The HTTP server of a job's master or parameter server, on aiohttp: token, limits, errors, clean shutdown.

Who calls: `app.py` and `__main__.py` of master and pserver, which add routes. Every error is JSON of one
shape; details of bugs are only logged.
"""

import asyncio
import gc
import hmac
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from runtime.call_checks import RefusedError
from runtime.call_metrics import DISCONNECTED, CallMetrics
from runtime.connection import Bounds, answering, connection_of, count_drop
from runtime.drop_counts import Drop, DropCounts
from runtime.http_options import http_options
from runtime.listener import Listener, bind
from runtime.logs import keys
from runtime.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY_S = 120.0
"""Time limit for receiving a body, and for sending a long answer."""
_DRAIN_S = 1.0
"""How long calls in progress may take when the server stops."""
BOUNDS = Bounds(
    max_connections=16_384,
    max_per_address=4_096,
    handshake_s=10.0,
    head_s=10.0,
    body_s=BODY_S,
    answer_s=BODY_S,
    idle_s=300.0,
)
"""A job has up to 10 000 trainers with one or two connections each; a silent connection takes 7 KiB.
Trainers that make no call for longer open a new connection."""
_DROPS = web.AppKey("drops", DropCounts)
_OPEN = frozenset({"/healthz", "/metrics", "/openapi.json"})
"""Paths that need no token: they reveal only numbers of the job."""
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="edl"'}


def application(
    routes: Iterable[web.RouteDef],
    *,
    name: str,
    token: str,
    calls: CallMetrics,
    max_bytes: int,
    temporary: Mapping[type[Exception], int],
    hint: str = "",
) -> web.Application:
    """Creates the application of one component.

    Args:
        routes: Its paths and handlers.
        name: The component in error messages, such as "the master".
        token: The job's token. Every call must send it as a bearer token, except probes, scrapes and
            /openapi.json.
        calls: Measures the calls.
        max_bytes: A longer body gets 413.
        temporary: Error -> its HTTP status, for errors after which the same call may work later.
        hint: Appended to the message about an unknown path or method.
    """
    expected_token = token.encode()
    passing = _PassingErrors(temporary)

    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            _require_token(request, expected_token)
            connection_of(request).admit()
            _require_plain_body(request)
            return await handler(request)
        except (RefusedError, web.RequestPayloadError) as error:
            return _refusal(error, calls.drops)
        except web.HTTPException as error:
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
            return _error_answer(error.status, f"{error.reason}{hint}", headers=headers)
        except tuple(temporary) as error:
            return _error_answer(passing.status_of(error), str(error))
        except ConnectionError:  # the caller has disconnected, or does not read its answer
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=DISCONNECTED)
        except Exception:
            log.exception("call failed")
            return _error_answer(500, f"{name} could not answer; see its log for the reason")

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        path = "unknown" if resource is None else resource.canonical
        with answering(request), calls.measure(path) as call_status:
            response = await answer(request, handler)
            call_status.status = response.status
            return response

    app = web.Application(client_max_size=max_bytes, middlewares=[measure])
    app.add_routes(routes)
    app[_DROPS] = calls.drops
    return app


def json_answer(body: Mapping[str, Any]) -> web.Response:
    """Returns an answer in JSON."""
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def error_body(status: int, message: str, field: str | None) -> dict[str, Any]:
    """Returns the JSON of an error in an answer."""
    return {"status": status, "message": message, **({} if field is None else {"field": field})}


def metrics_answer(text: bytes) -> web.Response:
    """Returns the answer to a scrape."""
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


async def read_body(request: web.Request) -> bytes:
    """Reads the body of a request.

    Raises:
        RefusedError: 408, the body did not arrive in time; 413, it is longer than the application allows.
    """
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError as error:
        raise RefusedError(408, f"the body did not arrive within {BODY_S:g} s") from error
    except web.HTTPRequestEntityTooLarge as error:
        raise _too_long(request) from error


def body_bytes(request: web.Request) -> int:
    """Returns the length of the body in bytes, before it is read.

    Raises:
        RefusedError: 411, the length is missing; 413, it is more than the application allows.
    """
    size = request.content_length
    if size is None:
        raise RefusedError(411, "Content-Length is missing")
    if size > request.client_max_size:
        raise _too_long(request)
    return size


@asynccontextmanager
async def serving(
    app: web.Application,
    listen: str,
    stop: Callable[[], Awaitable[None]],
    drain_s: float = _DRAIN_S,
) -> AsyncIterator[tuple[str, int]]:
    """Serves an application while the block runs.

    Args:
        app: From `application`.
        listen: Address and port, as in settings; port 0 selects a free one.
        stop: Stops the service; meanwhile the last calls are still answered.
        drain_s: How long calls in progress may take after that, in seconds.

    Yields:
        The actual address and port.

    Raises:
        OSError: the address cannot be used; the text names address and flag.
    """
    runner = web.AppRunner(app, shutdown_timeout=drain_s, **http_options(BOUNDS, app[_DROPS]))
    await runner.setup()
    listener = None
    try:
        listening = bind(listen)
        host, port = listening.getsockname()[:2]
        assert runner.server is not None  # noqa: S101 - tells mypy that the set-up has created it
        listener = Listener(listening, runner.server, BOUNDS, app[_DROPS])
        listener.start()
        yield host, port
    finally:
        await stop()
        if listener is not None:
            await listener.close()
        await runner.cleanup()


async def serve_until_stopped(
    app: web.Application,
    listen: str,
    stop: Callable[[], Awaitable[None]],
    *ends: asyncio.Future[Any],
    **who: object,
) -> None:
    """Serves an application until SIGTERM or SIGINT, or until one of `ends` is done.

    Args:
        app: As for `serving`.
        listen: As for `serving`.
        stop: As for `serving`.
        ends: Futures that end the server too.
        who: Keys of the log line about the start, such as the job.
    """
    gc.freeze()  # imported modules stay: the garbage collector need not look at them
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with serving(app, listen, stop) as (host, port):
        log.info("serving", extra=keys(**who, host=host, port=port))
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait({stopped, *ends}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()


class _PassingErrors:
    """The errors after which the same call may work later."""

    def __init__(self, statuses: Mapping[type[Exception], int]) -> None:
        self._statuses, self._logged = statuses, ""

    def status_of(self, error: Exception) -> int:
        """Returns the HTTP status; logs an error only if it differs from the last one: a full disk fails all calls."""
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("%s", error)
        return next(self._statuses[kind] for kind in self._statuses if isinstance(error, kind))


def _require_token(request: web.Request, token: bytes) -> None:
    if request.path not in _OPEN and not _is_authorized(request, token):
        raise RefusedError(401, "the job's token is missing or wrong: Authorization: Bearer …")


def _require_plain_body(request: web.Request) -> None:
    """Refuses a compressed body: limits count the bytes that arrive, but it may expand a thousandfold."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise RefusedError(415, "Content-Encoding: send the body as it is, not compressed")


def _is_authorized(request: web.Request, token: bytes) -> bool:
    """Returns whether the request sends the job's token."""
    kind, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer":
        return False
    return hmac.compare_digest(credentials.strip().encode(errors="surrogateescape"), token)


def _refusal(error: RefusedError | web.RequestPayloadError, drops: DropCounts) -> web.Response:
    if isinstance(error, RefusedError):
        return _error_answer(error.status, str(error), error.field)
    count_drop(drops, Drop.MALFORMED)
    return _error_answer(400, "the body is not as its headers say")


def _too_long(request: web.Request) -> RefusedError:
    return RefusedError(413, f"the body is longer than {request.client_max_size} bytes")


def _error_answer(
    status: int, message: str, field: str | None = None, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=orjson.dumps({"error": error_body(status, message, field)}),
        status=status,
        content_type="application/json",
        headers=_CHALLENGE if status == web.HTTPUnauthorized.status_code else headers,
    )
