"""The Flask application that every serving room starts from: probes, metrics, JSON errors.

Who calls: `extender.app` and `webhook.app`, which add their routes. Clients never get HTML or
a traceback: an unexpected error is logged once under a short id, and the client gets the id.

Probes and metrics share the port with the rest on purpose: what answers them is the same
thread pool, so a stuck pool fails its liveness probe. Neither shows anything secret.

Routes that people read are private (docs/decisions/0005): they answer callers with a client
certificate, and callers on the same host, which is where `kubectl port-forward` comes from.
"""

import ipaddress
import logging
import ssl
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson
from flask import Flask, Response, current_app, request
from werkzeug.exceptions import (
    BadRequest,
    HTTPException,
    RequestEntityTooLarge,
    UnsupportedMediaType,
)

from runtime import metrics
from runtime.logs import keys

DRAINING = "EDL_DRAINING"
"""Key of `app.config`: the server is about to stop and wants no new callers."""
_OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
_PRIVATE = "EDL_PRIVATE"
"""Key of `app.config`: paths for named and local callers alone."""
_CLIENTS_NAMED = "EDL_CLIENTS_NAMED"
"""Key of `app.config`: whether every path that is not open wants a client certificate."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether callers should come, and what a person wants to see when they should not."""

    ready: bool
    details: Mapping[str, object] = field(default_factory=dict)


def application(
    name: str,
    *,
    registry: metrics.Metrics,
    readiness: Callable[[], Readiness],
    max_body_bytes: int,
    clients_named: bool = False,
) -> Flask:
    """A Flask application with /healthz, /readyz and /metrics and JSON errors.

    Args:
        name: The room.
        registry: What /metrics shows.
        readiness: Asked by every /readyz; must be quick and not raise.
        max_body_bytes: A body of this length or longer gets 413.
        clients_named: Every other route wants a client certificate (403 without).
    """
    app = Flask(name, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    app.config[DRAINING] = False
    app.register_error_handler(HTTPException, _refused)
    app.register_error_handler(Exception, _failed)
    app.config[_CLIENTS_NAMED] = clients_named
    app.config[_PRIVATE] = frozenset()
    app.before_request(_guard)

    @app.get("/healthz")
    def healthz() -> Response:
        return reply({"status": "ok"})

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


def private(app: Flask, path: str, answer: Callable[[], Response]) -> None:
    """Adds `GET path` for callers with a client certificate or on this host, 403 for others.

    Pods that share a network with the server are not let in by being there, and no proxy header
    is believed.
    """
    app.config[_PRIVATE] |= {path}
    app.add_url_rule(path, f"private{path}", answer, methods=["GET"])


def reply(body: object, status: int = 200) -> Response:
    """`body` as a JSON response; values JSON does not know are shown as text."""
    return Response(orjson.dumps(body, default=str), status, content_type="application/json")


def body_json() -> object:
    """The body of the current request.

    Raises:
        UnsupportedMediaType: it is not declared as JSON (415).
        BadRequest: it is not JSON (400).
        RequestEntityTooLarge: it is longer than the cap (413).
    """
    if request.mimetype != "application/json":
        raise UnsupportedMediaType("send Content-Type: application/json")
    data = request.get_data(cache=False)
    # Werkzeug cuts a chunked body off at the cap without a word.
    if len(data) >= current_app.config["MAX_CONTENT_LENGTH"]:
        raise RequestEntityTooLarge
    try:
        document: object = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    return document


def _error(status: int, message: str, **more: object) -> Response:
    return reply(
        {"error": {"status": status, "message": " ".join(message.split()), **more}}, status
    )


def _refused(error: HTTPException) -> Response:
    """400, 404, 405, 413, 415 and their kin, with the headers they prescribe (such as Allow)."""
    response = _error(error.code or 500, error.description or error.name)
    for name, value in error.get_headers():
        if name.lower() != "content-type":
            response.headers[name] = value
    return response


def _failed(error: Exception) -> Response:
    ident = uuid.uuid4().hex[:8]
    log.error(
        "request failed",
        exc_info=error,
        extra=keys(id=ident, method=request.method, path=request.path),
    )
    return _error(500, "internal error; the log has more under this id", id=ident)


def _guard() -> Response | None:
    """What a caller may not see, or None."""
    if request.path in _OPEN or _named():
        return None
    if request.path in current_app.config[_PRIVATE]:
        if _local():
            return None
        return _error(403, "this is shown on the same host only: use kubectl port-forward")
    if current_app.config[_CLIENTS_NAMED]:
        return _error(403, "a client certificate of the configured CA is needed here")
    return None


def _named() -> bool:
    """Whether the caller showed a certificate; TLS has checked it against the configured CA."""
    connection = request.environ.get("gunicorn.socket")
    return isinstance(connection, ssl.SSLSocket) and bool(connection.getpeercert())


def _local() -> bool:
    """Whether the connection comes from this host or, in a pod, from the pod itself."""
    try:
        address = ipaddress.ip_address(request.remote_addr or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
