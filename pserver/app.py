"""The HTTP layer: token check, size limits, routes and error responses. No decisions."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware

from pserver import protocol
from pserver.errors import BusyError, CallRefusedError, ShardError
from pserver.frames import Json
from pserver.inflight_limit import InflightLimit
from pserver.metrics import PserverMetrics
from pserver.service import ParameterService
from runtime.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
INFLIGHT_BYTES = 256 << 20
FRAME = "application/vnd.edl.frame"
_OPEN = frozenset({"/healthz", "/metrics"})
"""Paths without token check: they expose only numbers of the job."""
_BODY_S = 120.0
"""Time limit for receiving a body, and for sending an answer."""
_MAX_DIGITS = 15


def make(service: ParameterService, token: str, measures: PserverMetrics) -> web.Application:
    """The aiohttp application."""
    calls = _Handlers(service, measures)
    app = web.Application(
        client_max_size=protocol.MAX_BYTES, middlewares=[_errors(measures), _token(token)]
    )
    app.add_routes(
        [
            web.post("/v1/enter", calls.json(service.enter)),
            web.post("/v1/tickets", calls.json(service.request_ticket)),
            web.post("/v1/settle", calls.json(service.settle)),
            web.post("/v1/pull", calls.frame(service.pull)),
            web.post("/v1/lookup", calls.frame(service.lookup)),
            web.post("/v1/push", calls.frame(service.push)),
            web.post("/v1/rows", calls.frame(service.page)),
            web.post("/v1/refusals", calls.json(service.report_refusal)),
            web.post("/v1/prepare", calls.json(service.prepare)),
            web.post("/v1/commit", calls.json(service.commit)),
            web.put("/v1/pins/{number}", calls.pin),
            web.delete("/v1/pins/{number}", calls.unpin),
            web.get("/v1/model", calls.model),
            web.get("/v1/status", calls.status),
            web.get("/metrics", calls.metrics),
            web.get("/healthz", calls.health),
        ]
    )
    return app


class _Handlers:
    """The request handlers: each reads a request, calls the service and writes the answer."""

    def __init__(self, service: ParameterService, measures: PserverMetrics) -> None:
        self._service = service
        self._measures = measures
        self._inflight = InflightLimit(INFLIGHT_BYTES)

    def json(self, handler: Callable[[bytes], Awaitable[Json]]) -> Handler:
        """A handler that answers in JSON."""

        async def handle(request: web.Request) -> web.Response:
            async with self._inflight.reserve(_length(request)):
                return _json(await handler(await _body(request)))

        return handle

    def frame(self, handler: Callable[[bytes], Awaitable[bytes]]) -> Handler:
        """A handler that answers with a frame; its bytes stay reserved until the answer is sent."""

        async def handle(request: web.Request) -> web.StreamResponse:
            size = _length(request) + self._service.answer_bytes
            async with self._inflight.reserve(size):
                data = await handler(await _body(request))
                answer = web.StreamResponse()
                answer.content_type, answer.content_length = FRAME, len(data)
                async with asyncio.timeout(_BODY_S):
                    await answer.prepare(request)
                    await answer.write(data)
                    await answer.write_eof()
                return answer

        return handle

    async def pin(self, request: web.Request) -> web.Response:
        return _json(await self._service.pin(_number(request), await _body(request)))

    async def unpin(self, request: web.Request) -> web.Response:
        return _json(await self._service.unpin(_number(request), await _body(request)))

    async def model(self, _: web.Request) -> web.Response:
        return _json(await self._service.model())

    async def status(self, _: web.Request) -> web.Response:
        return _json(await self._service.status())

    async def metrics(self, _: web.Request) -> web.Response:
        body = self._measures.text(await self._service.status(), self._inflight.used)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def health(self, _: web.Request) -> web.Response:
        return _json({"ok": True})


def _length(request: web.Request) -> int:
    """Size of the body in bytes, checked before any of it is read.

    Raises:
        CallRefusedError: The length is missing or too large.
    """
    size = request.content_length
    if size is None:
        raise CallRefusedError(411, "Content-Length is missing")
    if size > protocol.MAX_BYTES:
        raise CallRefusedError(413, f"the body is longer than {protocol.MAX_BYTES} bytes")
    return size


async def _body(request: web.Request) -> bytes:
    async with asyncio.timeout(_BODY_S):
        return await request.read()


def _token(token: str) -> Middleware:
    expected_token = token.encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        kind, _, credentials = request.headers.get("Authorization", "").partition(" ")
        right = hmac.compare_digest(
            credentials.strip().encode(errors="surrogateescape"), expected_token
        )
        if request.path not in _OPEN and not (right and kind.lower() == "bearer"):
            raise CallRefusedError(
                401, "the job's token is missing or wrong: Authorization: Bearer …"
            )
        return await handler(request)

    return check


def _errors(measures: PserverMetrics) -> Middleware:
    @web.middleware
    async def catch(request: web.Request, handler: Handler) -> web.StreamResponse:
        with measures.call(_route(request)) as call_status:
            answer = await _answer(request, handler)
            call_status.status = answer.status
            return answer

    return catch


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns every error into the same JSON shape; internal errors are described only in the log."""
    try:
        return await handler(request)
    except CallRefusedError as error:
        return _refused(error.status, str(error), error.field)
    except (BusyError, ShardError) as error:
        log.warning("%s", error)
        return _refused(503 if isinstance(error, BusyError) else 507, str(error))
    except TimeoutError:
        return _refused(408, f"the body did not arrive within {_BODY_S:g} s")
    except web.HTTPException as error:
        return _refused(error.status, error.reason)
    except (asyncio.CancelledError, ConnectionError):
        raise  # the client has disconnected
    except Exception:
        log.exception("call failed")
        return _refused(500, "internal error: see the parameter server's log")


def _refused(status: int, message: str, field: str | None = None) -> web.Response:
    error: Json = {"status": status, "message": message}
    if field is not None:
        error["field"] = field
    return web.Response(
        body=orjson.dumps({"error": error}), status=status, content_type="application/json"
    )


def _json(body: Json) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _number(request: web.Request) -> int:
    text = request.match_info["number"]
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise CallRefusedError(422, "the number of a pin must be a whole number", "number")
    return int(text)


def _route(request: web.Request) -> str:
    """The route's template, so that numbers in a path do not become metric labels."""
    resource = request.match_info.route.resource
    return "unknown" if resource is None else resource.canonical
