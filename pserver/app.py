"""The HTTP layer of a parameter server: routes, and limits of bodies and answers. It makes no decisions."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from edl_protocol import pserver as protocol
from edl_protocol.fields import Json
from edl_protocol.frames import CONTENT_TYPE

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
    """Creates the application; the caller stops the service."""
    handlers = _Handlers(service, metrics)
    return application(
        [
            web.post(protocol.Enter.PATH, handlers.json(service.enter)),
            web.post(protocol.TicketRequest.PATH, handlers.json(service.request_ticket)),
            web.post(protocol.Settle.PATH, handlers.json(service.settle)),
            web.post(protocol.Pull.PATH, handlers.frame(service.pull)),
            web.post(protocol.Lookup.PATH, handlers.frame(service.lookup)),
            web.post(protocol.Push.PATH, handlers.frame(service.push)),
            web.post(protocol.Page.PATH, handlers.frame(service.page)),
            web.post(protocol.Refusal.PATH, handlers.json(service.report_refusal)),
            web.post(protocol.PositionCall.PATH, handlers.json(service.position)),
            web.post(protocol.Prepare.PATH, handlers.json(service.prepare)),
            web.post(protocol.Commit.PATH, handlers.json(service.commit)),
            web.put(protocol.PIN_PATH, handlers.pin(service.pin)),
            web.delete(protocol.PIN_PATH, handlers.pin(service.unpin)),
            web.get(protocol.MODEL_PATH, handlers.model),
            web.get(protocol.STATUS_PATH, handlers.status),
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
        """Creates a handler that answers in JSON."""

        async def handle(request: web.Request) -> web.Response:
            async with self._inflight.reserve(body_bytes(request)):
                return json_answer(await handler(await read_body(request)))

        return handle

    def pin(self, execute: Callable[[int, bytes], Awaitable[Json]]) -> Handler:
        """Creates a handler of calls about a pin; the pin's number is in the path."""

        async def handle(request: web.Request) -> web.Response:
            number = whole_number(request.match_info["number"], "number")
            async with self._inflight.reserve(body_bytes(request)):
                return json_answer(await execute(number, await read_body(request)))

        return handle

    def frame(self, handler: Callable[[bytes], Awaitable[bytes]]) -> Handler:
        """Creates a handler that answers with a frame. The answer's bytes stay reserved until it is sent."""

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
