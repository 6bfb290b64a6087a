"""The extender's HTTP routes, and the assembly of its parts into a service."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from flask import Response, request
from kubernetes.client.configuration import Configuration
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import BadRequest, ServiceUnavailable

from extender import certificates, handlers, wire
from extender.decision_log import DecisionLog, add_decisions_route
from extender.settings import ExtenderSettings
from extender.state import ExtenderState
from extender.tls_files import TlsFiles
from kube import decode
from kube.active import ActivePolicy, add_policy_metric
from kube.cache import ClusterCache
from kube.client import Client
from kube.watch_metrics import add_watch_metrics
from policy import decisions
from policy.cluster.snapshot import Pod
from policy.names import POLICY_CONFIGMAP
from policy.planning.victims import expected
from runtime import clock, web
from runtime.logs import keys
from runtime.metrics import Metrics
from runtime.serve import WebService

log = logging.getLogger(__name__)

T = TypeVar("T", bound=BaseModel)

_VERBS = ("filter", "prioritize", "preempt")


class Extender:
    """Answers kube-scheduler's requests from memory.

    It never calls the API server while kube-scheduler waits.
    """

    def __init__(
        self,
        cache: ClusterCache,
        policy: ActivePolicy,
        metrics: Metrics,
        clock_s: Callable[[], float] = clock.monotonic_s,
        epoch_s: Callable[[], float] = clock.epoch_s,
    ) -> None:
        self._cache = cache
        self._policy = policy
        self._epoch_s = epoch_s
        self._decision_log = DecisionLog()
        self._state = ExtenderState(cache, clock_s, epoch_s, lambda: policy.current.policy)
        verbs = [[verb] for verb in _VERBS]
        self._time = metrics.histogram("answer_seconds", "Time to answer a request.", ["verb"])
        self._nodes = metrics.counter(
            "nodes_rejected_total", "Nodes that filter rejected, by reason.", ["reason"]
        )
        self._errors = metrics.counter(
            "errors_total", "Requests that were refused.", ["verb"], zeroed=verbs
        )
        metrics.total(
            "decisions_dropped_total",
            "Decision records dropped for newer ones.",
            lambda: self._decision_log.dropped,
        )
        self._last_request_s = dict.fromkeys(_VERBS, 0.0)
        """Verb -> time of the last request, in seconds since the epoch; 0 if there was none."""
        last_request = metrics.gauge(
            "last_request_timestamp_seconds",
            "Time of kube-scheduler's last request since the extender's start; 0 for none.",
            ["verb"],
        )
        for verb in _VERBS:
            last_request.labels(verb).set_function(partial(self._last_request_s.__getitem__, verb))
        self._client_certificate: Mapping[str, object] | None = None
        client_expiry = metrics.gauge(
            "client_certificate_expiry_timestamp_seconds",
            "When the certificate of kube-scheduler's last request ends, in epoch seconds; 0 for none.",
        )
        client_expiry.set_function(lambda: certificates.peer_expiry_s(self._client_certificate))
        self._victims = metrics.counter(
            "victims_total", "Training pods chosen as victims, by tier.", ["tier"]
        )

    @property
    def last_requests(self) -> dict[str, str]:
        """Returns verb -> time of kube-scheduler's last request; "never" if there was none since the start."""
        return {
            verb: decisions.time(request_s) if request_s else "never"
            for verb, request_s in self._last_request_s.items()
        }

    def routes(self, app: web.WebApp) -> None:
        """Adds the three verbs to `app`."""
        answers: dict[str, Callable[[], object]] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
        }
        for verb, answer in answers.items():
            app.add_url_rule(f"/{verb}", verb, self._timed(verb, answer), methods=["POST"])
        add_decisions_route(app, self._decision_log)

    def _timed(self, verb: str, answer: Callable[[], object]) -> Callable[[], Response]:
        def timed() -> Response:
            self._last_request_s[verb] = self._epoch_s()
            self._client_certificate = request.environ.get(web.PEER_CERTIFICATE)
            with self._time.labels(verb).time(), self._counting_errors(verb):
                self._require_sync()
                return web.reply(answer())

        return timed

    @contextmanager
    def _counting_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._errors.labels(verb).inc()
            raise

    def _require_sync(self) -> None:
        if not self._cache.synced:
            raise ServiceUnavailable("the extender has not listed the cluster yet")
        if not self._policy.current.usable:
            raise ServiceUnavailable(
                "this server has read no valid policy since it started: see /readyz"
            )

    def _filter(self) -> object:
        args = _read(wire.ExtenderArgs)
        with self._state.view() as view:
            pod = _pod(args.pod, view)
            policy = self._policy.current.policy
            verdict = handlers.filter_nodes(pod, args.node_names, view, policy)
            rejected = {**verdict.failed, **verdict.unresolvable}
            for decision in handlers.rejections(pod, rejected, view, self._epoch_s()):
                self._decision_log.record(pod.key, decision, series=decision.code)
        for reason, count in Counter(rejected.values()).items():
            self._nodes.labels(reason).inc(count)
        return wire.filter_result(verdict.passed, verdict.failed, verdict.unresolvable)

    def _prioritize(self) -> object:
        args = _read(wire.ExtenderArgs)
        with self._state.view() as view:
            pod = _pod(args.pod, view)
            scores = handlers.prioritize(pod, args.node_names, view.cluster)
        return wire.priorities(scores)

    def _preempt(self) -> object:
        args = _read(wire.PreemptionArgs)
        policy = self._policy.current.policy
        with self._state.view() as view:
            pod = _pod(args.pod, view)
            candidates = handlers.preempt(pod, args.candidates(), view, policy, self._epoch_s())
            candidate = expected(candidates, view.cluster)
            if candidate is not None:
                self._state.promise(pod, candidate, view.now_s)
                self._note(
                    pod, candidate.node, [view.cluster.pods.get(uid) for uid in candidate.uids]
                )
        return wire.preemption_result(candidates)

    def _note(self, pod: Pod, node: str, victims: list[Pod | None]) -> None:
        training = [victim for victim in victims if victim is not None and victim.is_training]
        if not training:
            return
        for victim in training:
            self._victims.labels(str(victim.tier)).inc()  # every training pod has a tier
        log.info(
            "victims chosen",
            extra=keys(pod=pod.key, node=node, victims=[victim.key for victim in training]),
        )


def _read(model: type[T]) -> T:
    try:
        return model.model_validate(web.body_json())
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise BadRequest(
            f"{field or 'body'}: {fault['msg']}; set nodeCacheCapable: true in kube-scheduler's "
            "configuration"
        ) from error


def _pod(obj: dict[str, object], view: handlers.View) -> Pod:
    """Decodes the pod of a request, without the resources that the policy ignores.

    Raises:
        BadRequest: The object is not a core/v1 Pod.
    """
    try:
        pod = decode.pod(obj)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(f"Pod: not a core/v1 Pod ({error!r})") from error
    return replace(pod, requests=view.cluster.counted(pod.requests))


def readiness(
    cache: ClusterCache,
    policy: ActivePolicy,
    now_s: float,
    stale_s: float,
    last_requests: Mapping[str, str],
) -> web.Readiness:
    """Returns whether the extender may answer: it has read the cluster and the policy, and no watch is stale.

    Args:
        cache: The watches.
        policy: The active policy.
        now_s: The current time of the clock of `cache`.
        stale_s: Age at which a watch counts as stale, so that kube-scheduler continues without the extender.
        last_requests: The result of `Extender.last_requests`. It is only reported, because kube-scheduler
            sends no request before the first trainer is created.
    """
    age_s = cache.age_s(now_s)
    details = {
        "synced": cache.synced,
        "watch_age_seconds": round(age_s, 1),
        "policy": policy.current.details(),
        "last_requests": last_requests,
    }
    ready = cache.synced and age_s < stale_s and policy.current.usable
    return web.Readiness(ready, details)


def build(settings: ExtenderSettings, connection: Configuration) -> WebService:
    """Builds the service without starting it; `connection` holds the API server's address and credentials."""
    api = Client(connection, user_agent="edl-extender")
    cache = ClusterCache(api, config_map=(settings.namespace, POLICY_CONFIGMAP))
    policy = ActivePolicy.of(cache.config)
    metrics = Metrics("extender")
    age = metrics.gauge("watch_age_seconds", "Time since the last message of the quietest watch.")
    age.set_function(lambda: cache.age_s(clock.monotonic_s()))
    expiry = metrics.gauge(
        "certificate_expiry_timestamp_seconds",
        "When the served certificate or the CA of callers ends, in epoch seconds; 0 without TLS.",
    )
    files = [path for path in (settings.tls_cert, settings.client_ca) if path is not None]
    expiry.set_function(lambda: certificates.expiry_s(files))
    add_watch_metrics(metrics, cache.reflectors)
    add_policy_metric(metrics, policy)
    extender = Extender(cache, policy, metrics)

    app = web.application(
        settings.component,
        registry=metrics,
        readiness=lambda: readiness(
            cache, policy, clock.monotonic_s(), settings.stale_seconds, extender.last_requests
        ),
        max_body_bytes=settings.max_body_bytes,
    )
    extender.routes(app)
    if not settings.tls_secret:
        return WebService(app, cache.start, cache.stop)
    tls = TlsFiles(api, settings)

    def start() -> None:
        cache.start()
        tls.start()

    def stop() -> None:
        tls.stop()
        cache.stop()

    return WebService(app, start, stop)
