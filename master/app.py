"""HTTP in front of the service: token, size, JSON, routes and errors; makes no decisions."""

import asyncio
import base64
import hmac
import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware

from master import openapi, page, protocol
from master.errors import RefusedError, UnavailableError
from master.metrics import MasterMetrics
from master.service import MasterService
from master.types import Json
from runtime.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_OPEN = frozenset({"/healthz", "/metrics", "/openapi.json"})
"""Paths that need no token: they reveal nothing of the job but numbers."""
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="edl"'}
"""Makes a browser ask its user for the token."""
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def make(service: MasterService, token: str, metrics: MasterMetrics) -> web.Application:
    """The application; its caller starts the service."""
    handlers = _Handlers(service, metrics)
    app = web.Application(
        client_max_size=protocol.MOST_BYTES,
        middlewares=[_errors(metrics), _token(token)],
    )
    app.add_routes(
        [
            web.post("/v1/join", handlers.join),
            web.put("/v1/datasets/{name}", handlers.describe),
            web.post("/v1/work", handlers.work),
            web.post("/v1/heartbeat", handlers.heartbeat),
            web.post("/v1/leave", handlers.leave),
            web.post("/v1/terms", handlers.term),
            web.post("/v1/checkpoints", handlers.save),
            web.put("/v1/checkpoints/{ticket}", handlers.saved),
            web.post("/v1/evaluations", handlers.evaluate),
            web.get("/v1/evaluations/{model_version}", handlers.evaluation),
            web.post("/v1/rendezvous", handlers.poll),
            web.post("/v1/rendezvous/leave", handlers.leave_rendezvous),
            web.post("/v1/fail", handlers.fail),
            web.post("/v1/setbacks", handlers.rollback),
            web.get("/v1/status", handlers.status),
            web.get("/", handlers.page),
            web.get("/metrics", handlers.metrics),
            web.get("/healthz", handlers.health),
            web.get("/openapi.json", handlers.openapi),
        ]
    )
    return app


class _Handlers:
    """The handlers of all paths, one method each."""

    def __init__(self, service: MasterService, metrics: MasterMetrics) -> None:
        self._service = service
        self._metrics = metrics

    async def join(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.JoinRequest, await request.read())
        return _json(await self._service.join(body.model_dump()))

    async def term(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.TermRequest, await request.read())
        return _json(await self._service.term(body.model_dump()))

    async def describe(self, request: web.Request) -> web.Response:
        name = _name(request.match_info["name"])
        body = protocol.check(protocol.DatasetDescription, await request.read())
        return _json(await self._service.describe(name, body.shape()))

    async def work(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.WorkRequest, await request.read())
        return _json(await self._service.work(body.model_dump(exclude_unset=True)))

    async def heartbeat(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.HeartbeatRequest, await request.read())
        return _json(await self._service.heartbeat(body.model_dump()))

    async def leave(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.LeaveRequest, await request.read())
        return _json(await self._service.leave(body.model_dump()))

    async def save(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.CheckpointRequest, await request.read())
        return _json(await self._service.save(body.model_dump()))

    async def saved(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.CheckpointReport, await request.read())
        return _json(await self._service.saved(request.match_info["ticket"], body.model_dump()))

    async def evaluate(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.EvaluationRequest, await request.read())
        return _json(await self._service.evaluate(body.model_dump()))

    async def evaluation(self, request: web.Request) -> web.Response:
        text = request.match_info["model_version"]
        if not (text.isascii() and text.isdecimal()) or len(text) > protocol.MOST_DIGITS:
            raise RefusedError(422, "model_version must be a whole number", "model_version")
        return _json(self._service.evaluation(int(text)))

    async def poll(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.RendezvousPoll, await request.read())
        return _json(await self._service.long_polls.poll(body.model_dump()))

    async def leave_rendezvous(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.RendezvousLeave, await request.read())
        return _json(self._service.long_polls.leave(body.trainer, body.incarnation))

    async def fail(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.JobFailure, await request.read())
        return _json(await self._service.fail(body.model_dump()))

    async def rollback(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.RollbackReport, await request.read())
        return _json(await self._service.rollback(body.model_dump()))

    async def status(self, _: web.Request) -> web.Response:
        return _json(self._service.status())

    async def page(self, _: web.Request) -> web.Response:
        text = page.render(self._service.status())
        return web.Response(text=text, content_type="text/html", headers=_PAGE_HEADERS)

    async def metrics(self, _: web.Request) -> web.Response:
        body = self._metrics.text(self._service.status())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def health(self, _: web.Request) -> web.Response:
        fatal = self._service.fatal
        if fatal.done():
            raise UnavailableError(fatal.result())
        return _json({"ok": True})

    async def openapi(self, _: web.Request) -> web.Response:
        return _json(openapi.description())


def _token(token: str) -> Middleware:
    expected = token.encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _OPEN and not _is_authorized(request, expected):
            raise RefusedError(401, "the job's token is missing or wrong: Authorization: Bearer …")
        return await handler(request)

    return check


def _is_authorized(request: web.Request, token: bytes) -> bool:
    """Whether a request has the token: as a bearer token, or as the password of any user."""
    kind, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            decoded = base64.b64decode(credentials.strip(), validate=True).decode()
        except ValueError:
            return False
        _, _, credentials = decoded.partition(":")
    elif kind.lower() != "bearer":
        return False
    return hmac.compare_digest(credentials.strip().encode(errors="surrogateescape"), token)


def _errors(metrics: MasterMetrics) -> Middleware:
    @web.middleware
    async def catch(request: web.Request, handler: Handler) -> web.StreamResponse:
        with metrics.call(_route(request)) as call_status:
            answer = await _answer(request, handler)
            call_status.status = answer.status
            return answer

    return catch


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers a request; every error is JSON of one shape, and details of bugs are only logged."""
    try:
        return await handler(request)
    except RefusedError as error:
        unauthorized = error.status == web.HTTPUnauthorized.status_code
        return _refused(error.status, str(error), error.field, _CHALLENGE if unauthorized else None)
    except UnavailableError as error:
        return _refused(507, str(error), None)
    except web.HTTPRequestEntityTooLarge:
        return _refused(413, f"the body is longer than {protocol.MOST_BYTES} bytes", None)
    except web.HTTPException as error:
        text = f"{error.reason}: see /openapi.json for the calls that exist"
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        return _refused(error.status, text, None, headers)
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("call failed")
        return _refused(500, "the master could not answer; see its log for the reason", None)


def _refused(
    status: int, message: str, field: str | None, headers: dict[str, str] | None = None
) -> web.Response:
    error: Json = {"status": status, "message": message}
    if field is not None:
        error["field"] = field
    return web.Response(
        body=orjson.dumps({"error": error}),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def _json(body: Json) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _name(text: str) -> str:
    """A name in a path, checked."""
    protocol.check(protocol.PathName, orjson.dumps({"name": text}))
    return text


def _route(request: web.Request) -> str:
    """The path as it was declared, so that names in it do not become labels."""
    resource = request.match_info.route.resource
    return "unknown" if resource is None else resource.canonical
