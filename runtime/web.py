"""The base Flask application of every component that serves: probes, metrics, JSON errors.

Who calls: extender, webhook and reconciler, which add their routes. Clients never get HTML or a
traceback: an unexpected error is logged once under a short id, and the client gets the id.

Probes, metrics and the routes for people have a port of their own beside the API's (`Port`), so
that they answer whatever its callers do; a stuck API still fails the liveness probe. Probes and
metrics contain no secrets and answer anybody. Routes for people are private (docs/decisions/0005):
they answer callers on the same host, such as `kubectl port-forward`.
"""

import ipaddress
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import orjson
from flask import Flask, Response, current_app, request
from werkzeug.exceptions import (
    BadRequest,
    HTTPException,
    RequestEntityTooLarge,
    UnsupportedMediaType,
)

from runtime import metrics
from runtime.drop_counts import counted_drops
from runtime.logs import keys

DRAINING = "EDL_DRAINING"
"""Key of `app.config`: the server is about to stop and accepts no new callers."""
METRICS = "EDL_METRICS"
"""Key of `app.extensions`: the metrics that /metrics serves."""
DROPS = "EDL_DROPS"
"""Key of `app.extensions`: the `DropCounts` of the servers of this application."""
STUCK = "EDL_STUCK"
"""Key of `app.extensions`: returns why the servers must be restarted, "" if they need not."""
_ALIVE = "EDL_ALIVE"
"""Key of `app.extensions`: returns whether the component's own threads go on, by a clock that is right."""
_TO_BE_REPLACED = (
    "a thread of the component is stuck, or the clock was set back: restart the process"
)
PORT = "edl.port"
"""Key of a request's environment: its `Port`; None where one port serves all routes."""
PEER_CERTIFICATE = "edl.peer_certificate"
"""Key of a request's environment: the caller's certificate (`ssl.SSLSocket.getpeercert`), or None."""
STREAM = "edl.stream"
"""Key of a request's environment: the parts of an answer that is sent as they come (`stream`)."""
PROBES = frozenset({"/healthz", "/readyz"})
_OPEN = PROBES | {"/metrics"}
_LOCAL = frozenset({ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")})
_PRIVATE = "EDL_PRIVATE"
"""Key of `app.config`: paths only for callers on this host."""

log = logging.getLogger(__name__)


class Port(StrEnum):
    """What a port serves, by the setting that chooses it."""

    API = "--listen"
    APART = "--probe-listen"
    """Probes, metrics and private routes."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness of a component, with details for people."""

    ready: bool
    details: Mapping[str, object] = field(default_factory=dict)


def application(
    name: str,
    *,
    registry: metrics.Metrics,
    readiness: Callable[[], Readiness],
    max_body_bytes: int,
    is_alive: Callable[[], bool] = lambda: True,
) -> Flask:
    """Creates a Flask application with /healthz, /readyz, /metrics and JSON errors.

    Args:
        name: The component.
        registry: The metrics that /metrics serves.
        readiness: Called by every /readyz; must be fast and must not raise.
        max_body_bytes: A body of this length or longer gets 413.
        is_alive: Called by every /healthz and heartbeat, as `readiness`; False has the process replaced.
    """
    app = Flask(name, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    app.config[DRAINING] = False
    app.extensions[METRICS] = registry
    app.extensions[DROPS] = counted_drops(registry)
    app.extensions[STUCK] = lambda: ""
    app.extensions[_ALIVE] = is_alive
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _internal_error)
    app.config[_PRIVATE] = frozenset()
    app.before_request(_check_access)

    @app.get("/healthz")
    def healthz() -> Response:
        reason = stuck(app)
        return _error(503, reason) if reason else reply({"status": "ok"})

    @app.get("/readyz")
    def readyz() -> Response:
        draining = bool(app.config[DRAINING])
        verdict = readiness()
        ready = verdict.ready and not draining
        body = {"ready": ready, "draining": draining, **verdict.details}
        return reply(body, 200 if ready else 503)

    @app.get("/metrics")
    def scrape() -> Response:
        return Response(registry.text(), content_type=metrics.CONTENT_TYPE)

    return app


def stuck(app: Flask) -> str:
    """Why the process of an application must be restarted, "" if it need not."""
    reason: str = app.extensions[STUCK]()
    return reason or ("" if app.extensions[_ALIVE]() else _TO_BE_REPLACED)


def private(app: Flask, path: str, answer: Callable[[], Response]) -> None:
    """Adds `GET path` for callers on this host; others get 403.

    Pods on the server's network are not local callers, and proxy headers are ignored.
    """
    app.config[_PRIVATE] |= {path}
    app.add_url_rule(path, f"private{path}", answer, methods=["GET"])


def reply(body: object, status: int = 200) -> Response:
    """Returns `body` as a JSON response; values of other types are converted to text."""
    return Response(orjson.dumps(body, default=str), status, content_type="application/json")


def stream(parts: AsyncGenerator[bytes], content_type: str) -> Response:
    """An answer without an end of its own: its parts are sent as they come, on the server's loop.

    The peer has the time of an answer to read what is sent, and no longer; `parts` is closed with
    the connection, and does not begin where the peer has gone before.
    """
    request.environ[STREAM] = parts
    return Response(content_type=content_type)


def body_json() -> object:
    """Parses the body of the current request.

    Raises:
        UnsupportedMediaType: it is not declared as JSON (415).
        BadRequest: it is not JSON (400).
        RequestEntityTooLarge: it exceeds the limit (413).
    """
    if request.mimetype != "application/json":
        raise UnsupportedMediaType("send Content-Type: application/json")
    data = request.get_data(cache=False)
    # Werkzeug silently truncates a body at the limit.
    if len(data) >= current_app.config["MAX_CONTENT_LENGTH"]:
        raise RequestEntityTooLarge
    try:
        document: object = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    return document


def _error(status: int, message: str, **fields: object) -> Response:
    return reply(
        {"error": {"status": status, "message": " ".join(message.split()), **fields}}, status
    )


def _http_error(error: HTTPException) -> Response:
    """Formats a 4xx error as JSON, with the headers that HTTP prescribes (such as Allow)."""
    response = _error(error.code or 500, error.description or error.name)
    for name, value in error.get_headers():
        if name.lower() != "content-type":
            response.headers[name] = value
    return response


def _internal_error(error: Exception) -> Response:
    ident = uuid.uuid4().hex[:8]
    log.error(
        "request failed",
        exc_info=error,
        extra=keys(id=ident, method=request.method, path=request.path),
    )
    return _error(500, "internal error; the log has details under this id", id=ident)


def _check_access() -> Response | None:
    """Returns the refusal of a path that this port or this caller does not get, or None."""
    private_paths = current_app.config[_PRIVATE]
    port = request.environ.get(PORT)
    own_port = Port.APART if request.path in _OPEN | private_paths else Port.API
    if port not in (None, own_port):
        return _error(404, f"{request.path} is not here; paths like it are served on {own_port}")
    if request.path in private_paths and not _is_local():
        return _error(403, "this page is only available on the same host: use kubectl port-forward")
    return None


def _is_local() -> bool:
    """Whether the connection comes from this host or, in a pod, from the pod itself.

    Only the two addresses of the host itself: the rest of 127.0.0.0/8 may carry traffic of others,
    such as 127.0.0.6, from which Istio passes on what arrives for a pod.
    """
    try:
        address = ipaddress.ip_address(request.remote_addr or "")
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address) in _LOCAL
