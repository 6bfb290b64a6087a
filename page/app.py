"""The page's routes: files for all callers, and data for callers with a token, within their permissions."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from flask import Flask, Response, g, request
from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    HTTPException,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)

from kube import errors
from page import assets, master
from page.access import Access, Authorizer
from page.cluster_view import ClusterView
from page.master import MasterAnswerError
from page.record_query import RecordQuery
from page.rows import record
from page.sections import OF_CLUSTER, Section, Subscription
from page.streams import CONTENT_TYPE, RETRY_S, Streams
from runtime import web
from runtime.metrics import Metrics

VERSION = "v1"
_API = f"/api/{VERSION}"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,4000}")
_MAX_LIMIT = 1_000
_MAX_ASKED, _MAX_ASKED_IN_NAMESPACE = 4, 2
"""Maximum numbers of masters asked at once, in all and in one namespace. A master that never answers occupies a
thread of the server for 2 s."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NO_TOKEN = "send a token of the API server: Authorization: Bearer ..."  # noqa: S105 - a message, not a password


class PageRoutes:
    """The handlers of all routes; the API server decides how much of the cluster a caller sees."""

    def __init__(
        self, view: ClusterView, authorizer: Authorizer, streams: Streams, metrics: Metrics
    ) -> None:
        self._view, self._authorizer, self._streams = view, authorizer, streams
        self._assets = assets.load()
        self._asked: Counter[str] = Counter()
        """Number of masters being asked, by namespace."""
        self._lock = threading.Lock()
        self._refused = metrics.counter(
            "calls_refused_total",
            "Calls refused by the API server, or because no stream was free.",
            ["reason"],
            zeroed=[["token"], ["unavailable"], ["caller"], ["full"]],
        )
        streams_open = metrics.gauge("streams_open", "Open event streams.")
        streams_open.set_function(lambda: streams.count)
        metrics.total("events_sent_total", "Events sent on streams.", lambda: streams.events)

    def routes(self, app: Flask) -> None:
        """Adds all routes to `app`; each is a GET."""
        app.after_request(_with_headers)
        app.add_url_rule("/", "index", lambda: self._asset(assets.INDEX))
        app.add_url_rule("/static/<path:path>", "asset", self._asset)
        answers: Mapping[str, Callable[..., Response]] = {
            "/me": self._me,
            "/stream": self._stream,
            "/records": self._records,
            "/jobs/series": self._series,
            "/jobs/<namespace>/<name>": self._job,
            "/jobs/<namespace>/<name>/training": self._training,
            "/nodes/<name>": self._node,
        }
        for path, answer in answers.items():
            app.add_url_rule(f"{_API}{path}", path, self._for_caller(answer))

    def _for_caller(self, answer: Callable[..., Response]) -> Callable[..., Response]:
        def answer_caller(**arguments: str) -> Response:
            g.token = _token()
            g.access = self._access(g.token)
            if not self._view.ready:
                raise _later("the page has not read the cluster yet: try again in a few seconds")
            return answer(**arguments)

        return answer_caller

    def _access(self, token: str) -> Access:
        try:
            return self._authorizer.access(token)
        except errors.Unauthorized as error:
            self._refused.labels("token").inc()
            raise Unauthorized(
                "the API server refuses this token: it is wrong or has expired"
            ) from error
        except errors.KubeError as error:
            self._refused.labels("unavailable").inc()
            raise _later(  # the error is not shown, because it contains the API server's address
                "the API server cannot check your permissions now: try again in a few seconds"
            ) from error

    def _asset(self, path: str) -> Response:
        asset = self._assets.get(path)
        if asset is None:
            raise NotFound(f"file {path[:100]!r} not found")
        response = Response(asset.content, content_type=asset.content_type)
        response.headers["Cache-Control"] = "no-cache"
        response.set_etag(asset.etag)
        response.make_conditional(request.environ)
        return response

    def _me(self) -> Response:
        access: Access = g.access
        names = sorted(name for name in self._view.namespaces if access.sees(name))
        return web.reply(
            {
                "user": access.user,
                "at": self._view.epoch_s(),
                "namespaces": names,
                "everything": access.all_namespaces,
                "cluster": access.cluster,
                "objective": access.cluster_log,
            }
        )

    def _stream(self) -> Response:
        access: Access = g.access
        subscription = _subscription(access)
        reason = self._streams.refusal(access.user)
        if reason:
            self._refused.labels(reason).inc()
        if reason == "caller":
            raise TooManyRequests(
                "you have too many open streams: close other windows of the page",
                retry_after=RETRY_S,
            )
        if reason:
            raise _later("no stream is free: try again in a few seconds")
        position = self._streams.position(subscription, request.headers.get("Last-Event-ID", ""))
        return web.stream(self._streams.follow(subscription, position), CONTENT_TYPE)

    def _records(self) -> Response:
        access: Access = g.access
        query = RecordQuery(
            namespace=request.args.get("namespace", ""),
            job=request.args.get("job", ""),
            about=request.args.get("about", ""),
            before_s=_number("before", float("inf")),
            limit=int(_number("limit", 200, _MAX_LIMIT)),
        )
        logged, has_older = self._view.history(query, access.sees)
        return web.reply({"records": [record(entry) for entry in logged], "more": has_older})

    def _series(self) -> Response:
        access: Access = g.access
        namespace = request.args.get("namespace", "")
        keys = [
            key
            for key, row in self._view.jobs.all()
            if access.sees(row.namespace) and namespace in ("", row.namespace)
        ]
        series = self._view.series(keys, int(_number("limit", 50, _MAX_LIMIT)))
        return web.reply({"at": self._view.epoch_s(), "series": series})

    def _job(self, namespace: str, name: str) -> Response:
        access: Access = g.access
        document = None
        if access.sees(namespace):
            key = f"{namespace}/{name}"
            document = self._view.job(key, access.sees, shares=access.cluster)
        if document is None:
            raise _no_job(namespace, name)
        return web.reply(document)

    def _training(self, namespace: str, name: str) -> Response:
        access: Access = g.access
        job_and_address = (
            self._view.master(f"{namespace}/{name}") if access.sees(namespace) else None
        )
        if job_and_address is None:
            raise NotFound(
                f"job {namespace}/{name} not found, not visible to you, or without a master of EDL"
            )
        job, address = job_and_address
        try:
            with self._asking(namespace):
                status = master.ask(self._authorizer.api(g.token), job, address)
            return web.reply({"at": self._view.epoch_s(), **status})
        except errors.Forbidden as error:
            raise Forbidden(
                f"the master's status needs permission to get Secrets in the namespace {namespace}: ask an admin"
            ) from error
        except (errors.KubeError, MasterAnswerError) as error:
            raise _later(f"the job's master does not answer: {error}") from error

    @contextmanager
    def _asking(self, namespace: str) -> Iterator[None]:
        """Counts a master as being asked, so that masters that do not answer cannot occupy all threads.

        Raises:
            HTTPException: Too many masters are being asked.
        """
        with self._lock:
            in_namespace = self._asked[namespace]
            if in_namespace >= _MAX_ASKED_IN_NAMESPACE or self._asked.total() >= _MAX_ASKED:
                raise _later("too many masters are being asked: try again in a few seconds")
            self._asked[namespace] += 1
        try:
            yield
        finally:
            with self._lock:
                self._asked -= Counter((namespace,))  # drops counts of zero

    def _node(self, name: str) -> Response:
        access: Access = g.access
        if not access.cluster:
            raise Forbidden("nodes need permission to list nodes, and pods of all namespaces")
        document = self._view.node(name)
        if document is None:
            raise NotFound(f"node {name[:253]!r} not found")
        return web.reply(document)


def _token() -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
        raise Unauthorized(_NO_TOKEN)
    return token


def _subscription(access: Access) -> Subscription:
    """Returns the requested sections that the caller may see."""
    words = [word for word in request.args.get("sections", "").split(",") if word]
    names = [str(section) for section in Section]
    unknown = [word for word in words if word not in names]
    if unknown or not words:
        raise BadRequest(
            f"sections: {unknown[0][:50]!r} is not one of {', '.join(names)}"
            if unknown
            else f"sections: list one or more of {', '.join(names)}"
        )
    job, fits = (request.args.get(name, "") for name in ("job", "fits"))
    if Section.JOB in words and "/" not in job:
        raise BadRequest("job: write namespace/name")
    # Sections that the caller may not see are left out. Only if none remains, the request is refused.
    allowed = {section: _may_have(access, section, job) for section in Section}
    sections = tuple(section for section in Section if section in words and allowed[section])
    if not sections:
        if Section.JOB in words:
            namespace, _, name = job.partition("/")
            raise _no_job(namespace, name)
        raise Forbidden(
            "nodes and use of the cluster need permission to list nodes, and pods of all namespaces; "
            "the objective needs permission to list decisionlogs.edl.training, jobs and pods of edl-system"
        )
    return Subscription(access, sections, request.args.get("namespace", ""), job, fits)


def _may_have(access: Access, section: Section, job: str) -> bool:
    if section in OF_CLUSTER:
        return access.cluster
    if section is Section.OBJECTIVE:
        return access.cluster_log
    return section is not Section.JOB or access.sees(job.partition("/")[0])


def _number(name: str, default: float, most: float = float("inf")) -> float:
    """Parses a number in the query."""
    text = request.args.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1 <= value <= most:
        raise BadRequest(f"{name}: write a number from 1 to {most:g}")
    return value


def _no_job(namespace: str, name: str) -> NotFound:
    return NotFound(f"elastic job {namespace[:63]}/{name[:253]} not found or not visible to you")


def _later(message: str) -> HTTPException:
    return ServiceUnavailable(message, retry_after=RETRY_S)


def _with_headers(response: Response) -> Response:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    return response
