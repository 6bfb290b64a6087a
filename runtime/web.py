"""The base Flask application of every component that serves: probes, metrics, JSON errors.

Who calls: webhook, extender, reconciler and page, which add their routes. Clients never get HTML or a
traceback: an unexpected error is logged once under a short id, and the client gets the id.

Probes, metrics and the private routes have a separate port (`Port`), so that callers of the API cannot
delay them; a stuck API still fails the liveness probe. Probes and metrics contain no secrets and answer
everybody. Private routes (decision 0005) answer callers on the same host, such as `kubectl port-forward`.
"""

import ipaddress
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
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

PORT = "edl.port"
"""Key in a request's environment: its `Port`; None if one port serves all routes."""
PEER_CERTIFICATE = "edl.peer_certificate"
"""Key in a request's environment: the caller's certificate (`ssl.SSLSocket.getpeercert`), or None."""
STREAM = "edl.stream"
"""Key in a request's environment: the parts of an answer that is sent part by part (`stream`)."""
PROBES = frozenset({"/healthz", "/readyz"})
_OPEN = PROBES | {"/metrics"}
_LOCAL = frozenset({ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")})
log = logging.getLogger(__name__)


class Port(StrEnum):
    """The ports of a component, named by the setting that chooses each."""

    API = "--listen"
    APART = "--probe-listen"
    """Probes, metrics and private routes."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness of a component, with details for people."""

    ready: bool
    details: Mapping[str, object] = field(default_factory=dict)


class WebApp(Flask):
    """The Flask application of a component, with what its servers and routes share.

    Args:
        name: The component.
        registry: The component's metrics.
        is_alive: Called by every /healthz and heartbeat; if it returns False, the process is
            replaced. Must be fast and must not raise.

    Attributes:
        metrics: Served by /metrics.
        drops: Counts the connections that the servers drop.
        draining: Whether the server is about to stop: readiness fails.
        private_paths: Paths that only callers on this host get.
        stuck_servers: Returns why the servers must be restarted, or "".
    """

    def __init__(self, name: str, registry: metrics.Metrics, is_alive: Callable[[], bool]) -> None:
        super().__init__(name, static_folder=None)
        self.metrics = registry
        self.drops = counted_drops(registry)
        self.draining = False
        self.private_paths: set[str] = set()
        self.stuck_servers: Callable[[], str] = lambda: ""
        self._is_alive = is_alive

    def stuck(self) -> str:
        """Returns why the process must be restarted, or ""."""
        reason = self.stuck_servers()
        if reason or self._is_alive():
            return reason
        return "a thread of the component is stuck, or the clock was set back: restart the process"

    def private(self, path: str, answer: Callable[[], Response]) -> None:
        """Adds `GET path` for callers on this host; others get 403.

        Pods on the server's network are not on this host, and proxy headers are ignored.
        """
        self.private_paths.add(path)
        self.add_url_rule(path, f"private{path}", answer, methods=["GET"])


def application(
    name: str,
    *,
    registry: metrics.Metrics,
    readiness: Callable[[], Readiness],
    max_body_bytes: int,
    is_alive: Callable[[], bool] = lambda: True,
) -> WebApp:
    """Creates a Flask application with /healthz, /readyz, /metrics and JSON errors.

    Args:
        name: The component.
        registry: The metrics that /metrics serves.
        readiness: Called by every /readyz; must be fast and must not raise.
        max_body_bytes: A body of this length or longer gets 413.
        is_alive: As for `WebApp`.
    """
    app = WebApp(name, registry, is_alive)
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _internal_error)
    app.before_request(lambda: _refusal(app.private_paths))

    @app.get("/healthz")
    def healthz() -> Response:
        reason = app.stuck()
        return _error(503, reason) if reason else reply({"status": "ok"})

    @app.get("/readyz")
    def readyz() -> Response:
        verdict = readiness()
        ready = verdict.ready and not app.draining
        body = {"ready": ready, "draining": app.draining, **verdict.details}
        return reply(body, 200 if ready else 503)

    @app.get("/metrics")
    def scrape() -> Response:
        return Response(registry.text(), content_type=metrics.CONTENT_TYPE)

    return app


def reply(body: object, status: int = 200) -> Response:
    """Returns `body` as a JSON response; values of other types are converted to text."""
    return Response(orjson.dumps(body, default=str), status, content_type="application/json")


def stream(parts: AsyncGenerator[bytes], content_type: str) -> Response:
    """Returns an answer whose parts are sent as they come, on the server's event loop.

    A peer that does not read within the deadline for answers is dropped. `parts` is closed with the
    connection, and never started if the peer has disconnected before.
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


def _refusal(private_paths: Collection[str]) -> Response | None:
    """Returns the refusal of a path that this port or this caller does not get, or None."""
    port = request.environ.get(PORT)
    is_private = request.path in private_paths
    own_port = Port.APART if is_private or request.path in _OPEN else Port.API
    if port not in (None, own_port):
        return _error(404, f"{request.path} is not here; paths like it are served on {own_port}")
    if is_private and not _is_local():
        return _error(403, "this page is only available on the same host: use kubectl port-forward")
    return None


def _is_local() -> bool:
    """Returns whether the connection comes from this host or, in a pod, from the pod itself.

    Only the two addresses of the host count: the rest of 127.0.0.0/8 may carry traffic of others, such as
    127.0.0.6, from which Istio forwards a pod's incoming traffic.
    """
    try:
        address = ipaddress.ip_address(request.remote_addr or "")
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address) in _LOCAL
