"""The HTTP layer of the master: routes and checks of bodies. It makes no decisions."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import orjson
from aiohttp import web
from edl_protocol import master as protocol
from edl_protocol.fields import Call

from master import openapi, status
from master.errors import UnavailableError
from master.metrics import MasterMetrics
from master.protocol import Body, check, dataset_shape
from master.service import MasterService
from runtime.call_checks import Json, RefusedError, whole_number
from runtime.job_server import (
    application,
    error_body,
    json_answer,
    metrics_answer,
    read_body,
)

C = TypeVar("C", bound=Call)


def make(service: MasterService, token: str, metrics: MasterMetrics) -> web.Application:
    """Creates the application; the caller starts the service."""
    handlers = _Handlers(service, metrics)
    return application(
        [
            _route(protocol.JoinRequest, service.join),
            _route(protocol.WorkRequest, service.work),
            _route(protocol.HeartbeatRequest, service.heartbeat),
            _route(protocol.HeartbeatsRequest, handlers.heartbeats),
            _route(protocol.LeaveRequest, service.leave),
            _route(protocol.TermRequest, service.term),
            _route(protocol.CheckpointRequest, service.save),
            _route(protocol.EvaluationRequest, service.evaluate),
            _route(protocol.RendezvousLeave, handlers.leave_rendezvous),
            _route(protocol.KeySet, service.key_calls.set),
            _route(protocol.KeyDelete, service.key_calls.delete),
            _route(protocol.KeyAdd, service.key_calls.add),
            _route(protocol.KeyGet, service.key_calls.get),
            _route(protocol.JobFailure, service.fail),
            _route(protocol.PositionRequest, service.position),
            _route(protocol.RewindRequest, service.rewind),
            _route(protocol.RollbackReport, service.rollback),
            web.put(protocol.DatasetDescription.PATH, handlers.describe),
            web.put(protocol.CheckpointReport.PATH, handlers.saved),
            web.post(protocol.RendezvousPoll.PATH, handlers.poll_rendezvous),
            web.get(protocol.EVALUATION_PATH, handlers.evaluation),
            web.get(protocol.STATUS_PATH, handlers.status),
            web.get("/metrics", handlers.metrics),
            web.get("/healthz", handlers.health),
            web.get("/openapi.json", handlers.openapi),
        ],
        name="the master",
        token=token,
        calls=metrics.calls,
        max_bytes=protocol.MAX_BYTES,
        temporary={UnavailableError: 507},
        hint=": see /openapi.json for the calls that exist",
    )


class _Handlers:
    """Handlers that do more than check a body and pass it to the service."""

    def __init__(self, service: MasterService, metrics: MasterMetrics) -> None:
        self._service = service
        self._metrics = metrics

    async def describe(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        check(protocol.PathName, orjson.dumps({"name": name}))
        body = await _read(request, protocol.DatasetDescription)
        return json_answer(await self._service.describe(name, dataset_shape(body)))

    async def heartbeats(self, body: protocol.HeartbeatsRequest) -> Json:
        answers: list[Json] = []
        for heartbeat in body.heartbeats:
            try:
                answers.append(await self._service.heartbeat(heartbeat))
            except RefusedError as error:
                answers.append({"error": error_body(error.status, str(error), error.field)})
        return {"answers": answers}

    async def saved(self, request: web.Request) -> web.Response:
        body = await _read(request, protocol.CheckpointReport)
        return json_answer(await self._service.saved(request.match_info["ticket"], body))

    async def evaluation(self, request: web.Request) -> web.Response:
        return json_answer(
            status.evaluation(
                self._service.ledger,
                whole_number(request.match_info["model_version"], "model_version"),
            )
        )

    async def poll_rendezvous(self, request: web.Request) -> web.Response:
        def is_closed() -> bool:
            return request.transport is None or request.transport.is_closing()

        body = await _read(request, protocol.RendezvousPoll)
        return json_answer(await self._service.long_polls.poll(body, is_closed))

    async def leave_rendezvous(self, body: protocol.RendezvousLeave) -> Json:
        return self._service.long_polls.leave(body.trainer, body.incarnation)

    async def status(self, _: web.Request) -> web.Response:
        return json_answer(self._service.status())

    async def metrics(self, _: web.Request) -> web.Response:
        return metrics_answer(self._metrics.text(self._service.status()))

    async def health(self, _: web.Request) -> web.Response:
        fatal = self._service.fatal
        if fatal.done():
            raise UnavailableError(fatal.result())
        return json_answer({"ok": True})

    async def openapi(self, _: web.Request) -> web.Response:
        return json_answer(openapi.description())


def _route(kind: type[C], execute: Callable[[C], Awaitable[Json]]) -> web.RouteDef:
    """Creates the route of a call: it checks the call's body, and answers with the result of `execute`."""

    async def handle(request: web.Request) -> web.Response:
        body = await _read(request, kind)
        return json_answer(await execute(body))

    return web.route(kind.METHOD, kind.PATH, handle)


async def _read(request: web.Request, kind: type[Body]) -> Body:
    """Reads the body of a request, and checks it against the caller's protocol version."""
    version = request.headers.get(protocol.VERSION_HEADER, "")
    return check(kind, await read_body(request), version)
