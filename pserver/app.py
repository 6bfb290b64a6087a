"""HTTP in front of the service: routes, and limits of bodies and answers; makes no decisions."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from edl_protocol.frames import CONTENT_TYPE, Json

from pserver import protocol
from pserver.errors import BusyError, ShardError
from pserver.inflight_limit import InflightLimit
from pserver.metrics import PserverMetrics
from pserver.service import ParameterService
from runtime.call_checks import whole_number
from runtime.job_server import (
    BODY_S,
    Handler,
    application,
    body_bytes,
    json_answer,
    metrics_answer,
    read_body,
)

INFLIGHT_BYTES = 256 << 20


def make(service: ParameterService, token: str, metrics: PserverMetrics) -> web.Application:
    """The application; its caller stops the service."""
    handlers = _Handlers(service, metrics)
    return application(
        [
            web.post("/v1/enter", handlers.json(service.enter)),
            web.post("/v1/tickets", handlers.json(service.request_ticket)),
            web.post("/v1/settle", handlers.json(service.settle)),
            web.post("/v1/pull", handlers.frame(service.pull)),
            web.post("/v1/lookup", handlers.frame(service.lookup)),
            web.post("/v1/push", handlers.frame(service.push)),
            web.post("/v1/rows", handlers.frame(service.page)),
            web.post("/v1/refusals", handlers.json(service.report_refusal)),
            web.post("/v1/position", handlers.json(service.position)),
            web.post("/v1/prepare", handlers.json(service.prepare)),
            web.post("/v1/commit", handlers.json(service.commit)),
            web.put("/v1/pins/{number}", handlers.pin(service.pin)),
            web.delete("/v1/pins/{number}", handlers.pin(service.unpin)),
            web.get("/v1/model", handlers.model),
            web.get("/v1/status", handlers.status),
            web.get("/metrics", handlers.metrics),
            web.get("/healthz", handlers.health),
        ],
        name="the parameter server",
        token=token,
        calls=metrics.calls,
        max_bytes=protocol.MAX_BYTES,
        temporary={BusyError: 503, ShardError: 507},
    )


class _Handlers:
    """The request handlers: each reads a request, calls the service and writes the answer."""

    def __init__(self, service: ParameterService, metrics: PserverMetrics) -> None:
        self._service = service
        self._metrics = metrics
        self._inflight = InflightLimit(INFLIGHT_BYTES)

    def json(self, handler: Callable[[bytes], Awaitable[Json]]) -> Handler:
        """A handler that answers in JSON."""

        async def handle(request: web.Request) -> web.Response:
            async with self._inflight.reserve(body_bytes(request)):
                return json_answer(await handler(await read_body(request)))

        return handle

    def pin(self, execute: Callable[[int, bytes], Awaitable[Json]]) -> Handler:
        """A handler of a pin, whose number is in the path."""

        async def handle(request: web.Request) -> web.Response:
            number = whole_number(request.match_info["number"], "number")
            async with self._inflight.reserve(body_bytes(request)):
                return json_answer(await execute(number, await read_body(request)))

        return handle

    def frame(self, handler: Callable[[bytes], Awaitable[bytes]]) -> Handler:
        """A handler that answers with a frame; its bytes stay reserved until the answer is sent."""

        async def handle(request: web.Request) -> web.StreamResponse:
            size = body_bytes(request) + self._service.answer_bytes
            async with self._inflight.reserve(size):
                data = await handler(await read_body(request))
                answer = web.StreamResponse()
                answer.content_type, answer.content_length = CONTENT_TYPE, len(data)
                try:
                    async with asyncio.timeout(BODY_S):
                        await answer.prepare(request)
                        await answer.write(data)
                        await answer.write_eof()
                except TimeoutError as error:
                    raise ConnectionError("the caller does not read the answer") from error
                return answer

        return handle

    async def model(self, _: web.Request) -> web.Response:
        return json_answer(await self._service.model())

    async def status(self, _: web.Request) -> web.Response:
        return json_answer(await self._service.status())

    async def metrics(self, _: web.Request) -> web.Response:
        status = await self._service.status()
        return metrics_answer(self._metrics.text(status, self._inflight.used))

    async def health(self, _: web.Request) -> web.Response:
        return json_answer({"ok": True})
