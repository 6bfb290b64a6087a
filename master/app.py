"""HTTP in front of the service: token, size, JSON, routes, errors; nothing is decided here."""

import asyncio
import base64
import hmac
import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware

from master import openapi, page, protocol
from master.errors import RefusedError
from master.measures import Measures
from master.service import Json, Service, UnavailableError
from runtime.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_OPEN = frozenset({"/healthz", "/metrics", "/openapi.json"})
"""Paths that need no token: they tell nothing of the job but numbers."""
_ASKS = {"WWW-Authenticate": 'Basic realm="edl"'}
"""So that a browser asks its user for the token."""
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def make(service: Service, token: str, measures: Measures) -> web.Application:
    """The application; the service must be started by whoever runs it."""
    calls = _Calls(service, measures)
    app = web.Application(
        client_max_size=protocol.MOST_BYTES,
        middlewares=[_errors(measures), _token(token)],
    )
    app.add_routes(
        [
            web.post("/v1/join", calls.join),
            web.put("/v1/datasets/{name}", calls.describe),
            web.post("/v1/work", calls.work),
            web.post("/v1/heartbeat", calls.heartbeat),
            web.post("/v1/leave", calls.leave),
            web.post("/v1/terms", calls.term),
            web.post("/v1/checkpoints", calls.save),
            web.put("/v1/checkpoints/{ticket}", calls.saved),
            web.post("/v1/evaluations", calls.evaluate),
            web.get("/v1/evaluations/{model_version}", calls.evaluation),
            web.post("/v1/rendezvous", calls.meet),
            web.post("/v1/rendezvous/leave", calls.quit),
            web.post("/v1/fail", calls.fail),
            web.post("/v1/setbacks", calls.setback),
            web.get("/v1/status", calls.status),
            web.get("/", calls.page),
            web.get("/metrics", calls.metrics),
            web.get("/healthz", calls.health),
            web.get("/openapi.json", calls.openapi),
        ]
    )
    return app


class _Calls:
    """One method for each path."""

    def __init__(self, service: Service, measures: Measures) -> None:
        self._service = service
        self._measures = measures

    async def join(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Join, await request.read())
        return _json(await self._service.join(body.model_dump()))

    async def term(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Term, await request.read())
        return _json(await self._service.term(body.model_dump()))

    async def describe(self, request: web.Request) -> web.Response:
        name = _name(request.match_info["name"])
        body = protocol.check(protocol.Description, await request.read())
        return _json(await self._service.describe(name, body.shape()))

    async def work(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Work, await request.read())
        return _json(await self._service.work(body.model_dump(exclude_unset=True)))

    async def heartbeat(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Heartbeat, await request.read())
        return _json(await self._service.heartbeat(body.model_dump()))

    async def leave(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Leave, await request.read())
        return _json(await self._service.leave(body.model_dump()))

    async def save(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Save, await request.read())
        return _json(await self._service.save(body.model_dump()))

    async def saved(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Saved, await request.read())
        return _json(await self._service.saved(request.match_info["ticket"], body.model_dump()))

    async def evaluate(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Evaluate, await request.read())
        return _json(await self._service.evaluate(body.model_dump()))

    async def evaluation(self, request: web.Request) -> web.Response:
        text = request.match_info["model_version"]
        if not (text.isascii() and text.isdecimal()) or len(text) > protocol.MOST_DIGITS:
            raise RefusedError(422, "model_version: a whole number, please", "model_version")
        return _json(self._service.evaluation(int(text)))

    async def meet(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Meet, await request.read())
        return _json(await self._service.meetings.meet(body.model_dump()))

    async def quit(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Quit, await request.read())
        return _json(self._service.meetings.leave(body.trainer, body.incarnation))

    async def fail(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Fail, await request.read())
        return _json(await self._service.fail(body.model_dump()))

    async def setback(self, request: web.Request) -> web.Response:
        body = protocol.check(protocol.Setback, await request.read())
        return _json(await self._service.setback(body.model_dump()))

    async def status(self, _: web.Request) -> web.Response:
        return _json(self._service.status())

    async def page(self, _: web.Request) -> web.Response:
        text = page.render(self._service.status())
        return web.Response(text=text, content_type="text/html", headers=_PAGE_HEADERS)

    async def metrics(self, _: web.Request) -> web.Response:
        body = self._measures.text(self._service.status())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def health(self, _: web.Request) -> web.Response:
        fatal = self._service.fatal
        if fatal.done():
            raise UnavailableError(fatal.result())
        return _json({"ok": True})

    async def openapi(self, _: web.Request) -> web.Response:
        return _json(openapi.description())


def _token(token: str) -> Middleware:
    wanted = token.encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _OPEN and not _allowed(request, wanted):
            raise RefusedError(401, "the job's token is missing or wrong: Authorization: Bearer …")
        return await handler(request)

    return check


def _allowed(request: web.Request, wanted: bytes) -> bool:
    """The token as a program sends it, or as a browser does: as the password of any user."""
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            _, _, given = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        except ValueError:
            return False
    elif kind.lower() != "bearer":
        return False
    return hmac.compare_digest(given.strip().encode(errors="surrogateescape"), wanted)


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
        asks = error.status == web.HTTPUnauthorized.status_code
        return _refused(error.status, str(error), error.named, _ASKS if asks else None)
    except UnavailableError as error:
        return _refused(507, str(error), None)
    except web.HTTPRequestEntityTooLarge:
        return _refused(413, f"the body is longer than {protocol.MOST_BYTES} bytes", None)
    except web.HTTPException as error:
        text = f"{error.reason}: see /openapi.json for what there is"
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        return _refused(error.status, text, None, headers)
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("call failed")
        return _refused(500, "the master could not answer; its log says why", None)


def _refused(
    status: int, message: str, named: str | None, headers: dict[str, str] | None = None
) -> web.Response:
    error: Json = {"status": status, "message": message}
    if named is not None:
        error["field"] = named
    return web.Response(
        body=orjson.dumps({"error": error}),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def _json(body: Json) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _name(text: str) -> str:
    protocol.check(protocol.Named, orjson.dumps({"name": text}))
    return text


def _route(request: web.Request) -> str:
    """The path as it was declared, so that names do not become labels."""
    resource = request.match_info.route.resource
    return "unknown" if resource is None else resource.canonical
