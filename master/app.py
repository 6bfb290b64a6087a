"""The HTTP layer of the master: routes and checks of bodies. It makes no decisions."""

from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from master import openapi, protocol, rewind_protocol, status
from master.errors import UnavailableError
from master.key_protocol import KeyAdd, KeyDelete, KeyGet, KeySet
from master.metrics import MasterMetrics
from master.service import MasterService
from runtime.call_checks import Body, Json, RefusedError, whole_number
from runtime.job_server import (
    Handler,
    application,
    error_body,
    json_answer,
    metrics_answer,
    read_body,
)


def make(service: MasterService, token: str, metrics: MasterMetrics) -> web.Application:
    """Creates the application; the caller starts the service."""
    handlers = _Handlers(service, metrics)
    return application(
        [
            web.post("/v1/join", _call(protocol.JoinRequest, service.join)),
            web.put("/v1/datasets/{name}", handlers.describe),
            web.post("/v1/work", _call(protocol.WorkRequest, service.work)),
            web.post("/v1/heartbeat", _call(protocol.HeartbeatRequest, service.heartbeat)),
            web.post("/v1/heartbeats", handlers.heartbeats),
            web.post("/v1/leave", _call(protocol.LeaveRequest, service.leave)),
            web.post("/v1/terms", _call(protocol.TermRequest, service.term)),
            web.post("/v1/checkpoints", _call(protocol.CheckpointRequest, service.save)),
            web.put("/v1/checkpoints/{ticket}", handlers.saved),
            web.post("/v1/evaluations", _call(protocol.EvaluationRequest, service.evaluate)),
            web.get("/v1/evaluations/{model_version}", handlers.evaluation),
            web.post("/v1/rendezvous", handlers.poll_rendezvous),
            web.post("/v1/rendezvous/leave", handlers.leave_rendezvous),
            web.post("/v1/rounds/keys/set", _call(KeySet, service.key_calls.set)),
            web.post("/v1/rounds/keys/delete", _call(KeyDelete, service.key_calls.delete)),
            web.post("/v1/rounds/keys/add", _call(KeyAdd, service.key_calls.add)),
            web.post("/v1/rounds/keys/get", _call(KeyGet, service.key_calls.get)),
            web.post("/v1/fail", _call(protocol.JobFailure, service.fail)),
            web.post("/v1/position", _call(rewind_protocol.PositionRequest, service.position)),
            web.post("/v1/rewind", _call(rewind_protocol.RewindRequest, service.rewind)),
            web.post("/v1/setbacks", _call(protocol.RollbackReport, service.rollback)),
            web.get("/v1/status", handlers.status),
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
        protocol.check(protocol.PathName, orjson.dumps({"name": name}))
        body = await _read(request, protocol.DatasetDescription)
        return json_answer(await self._service.describe(name, body.shape()))

    async def heartbeats(self, request: web.Request) -> web.Response:
        body = await _read(request, protocol.HeartbeatsRequest)
        answers: list[Json] = []
        for heartbeat in body.heartbeats:
            try:
                answers.append(await self._service.heartbeat(heartbeat))
            except RefusedError as error:
                answers.append({"error": error_body(error.status, str(error), error.field)})
        return json_answer({"answers": answers})

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

    async def leave_rendezvous(self, request: web.Request) -> web.Response:
        body = await _read(request, protocol.RendezvousLeave)
        return json_answer(self._service.long_polls.leave(body.trainer, body.incarnation))

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


def _call(kind: type[Body], execute: Callable[[Body], Awaitable[Json]]) -> Handler:
    """Creates a handler that checks a body and answers with the result of `execute`."""

    async def handle(request: web.Request) -> web.Response:
        body = await _read(request, kind)
        return json_answer(await execute(body))

    return handle


async def _read(request: web.Request, kind: type[Body]) -> Body:
    """Reads the body of a request and checks it by the protocol version of the caller."""
    version = request.headers.get(protocol.VERSION_HEADER, "")
    return protocol.check(kind, await read_body(request), version)
