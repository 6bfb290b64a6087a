"""The base Flask application of every component that serves: probes, metrics, JSON errors.

Who calls: extender, webhook and reconciler, which add their routes. Clients never get HTML or a
traceback: an unexpected error is logged once under a short id, and the client gets the id.

Probes and metrics intentionally share port and thread pool with the other routes, so that a stuck
pool fails its liveness probe. They contain no secrets.

Routes for people are private (docs/decisions/0005): they answer callers with a client certificate
and callers on the same host, such as `kubectl port-forward`.
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
"""Key of `app.config`: the server is about to stop and accepts no new callers."""
METRICS = "EDL_METRICS"
"""Key of `app.extensions`: the metrics that /metrics serves."""
_OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
_PRIVATE = "EDL_PRIVATE"
"""Key of `app.config`: paths only for callers with a certificate and local callers."""
_CLIENT_CERTS_REQUIRED = "EDL_CLIENT_CERTS_REQUIRED"
"""Key of `app.config`: whether all paths except the open ones need a client certificate."""

log = logging.getLogger(__name__)


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
    client_certs_required: bool = False,
) -> Flask:
    """Creates a Flask application with /healthz, /readyz, /metrics and JSON errors.

    Args:
        name: The component.
        registry: The metrics that /metrics serves.
        readiness: Called by every /readyz; must be fast and must not raise.
        max_body_bytes: A body of this length or longer gets 413.
        client_certs_required: Whether all other routes need a client certificate (403 without).
    """
    app = Flask(name, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    app.config[DRAINING] = False
    app.extensions[METRICS] = registry
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _internal_error)
    app.config[_CLIENT_CERTS_REQUIRED] = client_certs_required
    app.config[_PRIVATE] = frozenset()
    app.before_request(_check_access)

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
    """Adds `GET path` for callers with a client certificate or on this host; others get 403.

    Pods on the server's network are not local callers, and proxy headers are ignored.
    """
    app.config[_PRIVATE] |= {path}
    app.add_url_rule(path, f"private{path}", answer, methods=["GET"])


def reply(body: object, status: int = 200) -> Response:
    """Returns `body` as a JSON response; values of other types are converted to text."""
    return Response(orjson.dumps(body, default=str), status, content_type="application/json")


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
    # Werkzeug silently truncates a chunked body at the limit.
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
    """Returns the refusal of a private or protected path, or None."""
    if request.path in _OPEN or _has_client_cert():
        return None
    if request.path in current_app.config[_PRIVATE]:
        if _is_local():
            return None
        return _error(403, "this page is only available on the same host: use kubectl port-forward")
    if current_app.config[_CLIENT_CERTS_REQUIRED]:
        return _error(403, "this route needs a client certificate of the configured CA")
    return None


def _has_client_cert() -> bool:
    """Whether the caller presented a certificate; TLS has verified it with the configured CA."""
    connection = request.environ.get("gunicorn.socket")
    return isinstance(connection, ssl.SSLSocket) and bool(connection.getpeercert())


def _is_local() -> bool:
    """Whether the connection comes from this host or, in a pod, from the pod itself."""
    try:
        address = ipaddress.ip_address(request.remote_addr or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
