"""HTTP in front of the service: token, size, routes, errors; nothing is decided here."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware

from pserver import protocol
from pserver.errors import BusyError, RefusedError, ShardError
from pserver.frames import Json
from pserver.intake import Intake
from pserver.measures import Measures
from pserver.service import Service
from runtime.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
INTAKE_BYTES = 256 << 20
FRAME = "application/vnd.edl.frame"
_OPEN = frozenset({"/healthz", "/metrics"})
"""Paths that need no token: they tell nothing of the job but numbers."""
_BODY_S = 120.0
"""For a body to arrive, and for an answer to be taken."""
_MOST_DIGITS = 15


def make(service: Service, token: str, measures: Measures) -> web.Application:
    """The application."""
    calls = _Calls(service, measures)
    app = web.Application(
        client_max_size=protocol.MOST_BYTES, middlewares=[_errors(measures), _token(token)]
    )
    app.add_routes(
        [
            web.post("/v1/enter", calls.json(service.enter)),
            web.post("/v1/tickets", calls.json(service.ask)),
            web.post("/v1/settle", calls.json(service.settle)),
            web.post("/v1/pull", calls.frame(service.pull)),
            web.post("/v1/lookup", calls.frame(service.lookup)),
            web.post("/v1/push", calls.frame(service.push)),
            web.post("/v1/rows", calls.frame(service.page)),
            web.post("/v1/refusals", calls.json(service.refused)),
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


class _Calls:
    """Handlers."""

    def __init__(self, service: Service, measures: Measures) -> None:
        self._service = service
        self._measures = measures
        self._intake = Intake(INTAKE_BYTES)

    def json(self, act: Callable[[bytes], Awaitable[Json]]) -> Handler:
        """A call that is answered in JSON."""

        async def handle(request: web.Request) -> web.Response:
            async with self._intake.room(_length(request)):
                return _json(await act(await _body(request)))

        return handle

    def frame(self, act: Callable[[bytes], Awaitable[bytes]]) -> Handler:
        """A call that is answered with a frame; its room is held until that was taken."""

        async def handle(request: web.Request) -> web.StreamResponse:
            size = _length(request) + self._service.answer_bytes
            async with self._intake.room(size):
                data = await act(await _body(request))
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
        body = self._measures.text(await self._service.status(), self._intake.used)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def health(self, _: web.Request) -> web.Response:
        return _json({"ok": True})


def _length(request: web.Request) -> int:
    """Bytes of the body, told before any of them is read.

    Raises:
        RefusedError: It is not told, or too large.
    """
    size = request.content_length
    if size is None:
        raise RefusedError(411, "Content-Length is missing")
    if size > protocol.MOST_BYTES:
        raise RefusedError(413, f"the body is longer than {protocol.MOST_BYTES} bytes")
    return size


async def _body(request: web.Request) -> bytes:
    async with asyncio.timeout(_BODY_S):
        return await request.read()


def _token(token: str) -> Middleware:
    wanted = token.encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), wanted)
        if request.path not in _OPEN and not (right and kind.lower() == "bearer"):
            raise RefusedError(401, "the job's token is missing or wrong: Authorization: Bearer …")
        return await handler(request)

    return check


def _errors(measures: Measures) -> Middleware:
    @web.middleware
    async def catch(request: web.Request, handler: Handler) -> web.StreamResponse:
        with measures.call(_route(request)) as seen:
            answer = await _answer(request, handler)
            seen.status = answer.status
            return answer

    return catch


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error as JSON of one shape; a bug says nothing of itself but in the log."""
    try:
        return await handler(request)
    except RefusedError as error:
        return _refused(error.status, str(error), error.named)
    except (BusyError, ShardError) as error:
        log.warning("%s", error)
        return _refused(503 if isinstance(error, BusyError) else 507, str(error))
    except TimeoutError:
        return _refused(408, f"the body did not arrive within {_BODY_S:g} s")
    except web.HTTPException as error:
        return _refused(error.status, error.reason)
    except (asyncio.CancelledError, ConnectionError):
        raise  # nobody is there any more
    except Exception:
        log.exception("call failed")
        return _refused(500, "the parameter server could not answer; its log says why")


def _refused(status: int, message: str, named: str | None = None) -> web.Response:
    error: Json = {"status": status, "message": message}
    if named is not None:
        error["field"] = named
    return web.Response(
        body=orjson.dumps({"error": error}), status=status, content_type="application/json"
    )


def _json(body: Json) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _number(request: web.Request) -> int:
    text = request.match_info["number"]
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        raise RefusedError(422, "the number of a pin is a whole number", "number")
    return int(text)


def _route(request: web.Request) -> str:
    """The path as it was declared, so that numbers do not become labels."""
    resource = request.match_info.route.resource
    return "unknown" if resource is None else resource.canonical
