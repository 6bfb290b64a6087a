"""The extender's routes, and everything of one extender process but the process itself."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from flask import Flask, Response
from kubernetes.client.configuration import Configuration
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import BadRequest, ServiceUnavailable

from extender import handlers, wire
from extender.settings import ExtenderSettings
from extender.state import State
from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.client import Client
from kube.decode import Decoder
from policy.names import POLICY_CONFIGMAP
from policy.snapshot import Pod
from runtime import clock, web
from runtime.logs import keys
from runtime.metrics import Metrics
from runtime.records import Records, routes
from runtime.serve import Service

log = logging.getLogger(__name__)

T = TypeVar("T", bound=BaseModel)

_VERBS = ("filter", "prioritize", "preempt")


class Extender:
    """Answers kube-scheduler from memory; never calls the API server while it waits."""

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
        self._records = Records()
        self._state = State(
            cache, clock_s, lambda: policy.current.policy.stability.cool_down_seconds
        )
        verbs = [[verb] for verb in _VERBS]
        self._time = metrics.histogram("answer_seconds", "Time to answer.", ["verb"])
        self._nodes = metrics.counter(
            "nodes_rejected_total", "Nodes that filter rejected, by reason.", ["reason"]
        )
        self._errors = metrics.counter(
            "errors_total", "Requests that were refused.", ["verb"], zeroed=verbs
        )
        kept = metrics.gauge(
            "decisions_dropped_count", "Decision records that made room for newer."
        )
        kept.set_function(lambda: self._records.dropped)
        self._victims = metrics.counter(
            "victims_total", "Training pods chosen as victims, by tier.", ["tier"]
        )

    def routes(self, app: Flask) -> None:
        """Adds the three verbs to `app`."""
        answers: dict[str, Callable[[], object]] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
        }
        for verb, answer in answers.items():
            app.add_url_rule(f"/{verb}", verb, self._timed(verb, answer), methods=["POST"])
        routes(app, self._records, "pod")

    def _timed(self, verb: str, answer: Callable[[], object]) -> Callable[[], Response]:
        def timed() -> Response:
            with self._time.labels(verb).time(), self._counting_errors(verb):
                self._wants_sync()
                return web.reply(answer())

        return timed

    @contextmanager
    def _counting_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._errors.labels(verb).inc()
            raise

    def _wants_sync(self) -> None:
        if not self._cache.synced:
            raise ServiceUnavailable("the first lists are not in yet")

    def _filter(self) -> object:
        args = _read(wire.ExtenderArgs)
        pod = _pod(args.pod)
        with self._state.view() as view:
            result = handlers.filter_nodes(
                pod,
                args.node_names,
                view.index,
                self._policy.current.policy,
                promises=view.promises,
                cooling=view.cooling,
                now_s=view.now_s,
            )
            rejected = {**result.failed, **result.unresolvable}
            decisions = handlers.rejections(
                pod,
                rejected,
                view.index,
                promises=view.promises,
                cooling=view.cooling,
                now_s=view.now_s,
                at_s=self._epoch_s(),
            )
            for decision in decisions:
                self._records.note(pod.key, decision, strand=decision.code)
        for reason, count in Counter(rejected.values()).items():
            self._nodes.labels(reason).inc(count)
        return wire.filter_result(result.kept, result.failed, result.unresolvable)

    def _prioritize(self) -> object:
        args = _read(wire.ExtenderArgs)
        pod = _pod(args.pod)
        with self._state.view() as view:
            scores = handlers.prioritize(pod, args.node_names, view.index)
        return wire.priorities(scores)

    def _preempt(self) -> object:
        args = _read(wire.PreemptionArgs)
        pod = _pod(args.pod)
        policy = self._policy.current.policy
        with self._state.view() as view:
            chosen = handlers.preempt(pod, args.candidates(), view.index, policy, view.promises)
            if chosen is not None:
                self._state.promise(pod, chosen, view.now_s)
                self._note(pod, chosen.node, [view.index.pods.get(uid) for uid in chosen.uids])
        return wire.preemption_result(chosen)

    def _note(self, pod: Pod, node: str, victims: list[Pod | None]) -> None:
        known = [victim for victim in victims if victim is not None]
        for victim in known:
            self._victims.labels(str(victim.tier or "none")).inc()
        log.info(
            "victims chosen",
            extra=keys(pod=pod.key, node=node, victims=[victim.key for victim in known]),
        )


def _read(model: type[T]) -> T:
    try:
        return model.model_validate(web.body_json())
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise BadRequest(
            f"{field or 'body'}: {fault['msg']} (is nodeCacheCapable true in the scheduler's "
            "configuration?)"
        ) from error


def _pod(obj: dict[str, object]) -> Pod:
    """The pod that is asked about.

    Raises:
        BadRequest: it is no core/v1 Pod.
    """
    try:
        return Decoder().pod(obj)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(f"Pod: not a core/v1 Pod ({error!r})") from error


def readiness(
    cache: ClusterCache, policy: ActivePolicy, now_s: float, stale_s: float
) -> web.Readiness:
    """Whether answers may be given: the first lists are in, and no watch has gone silent.

    Args:
        cache: The watches.
        policy: The policy in force.
        now_s: On the clock of `cache`.
        stale_s: With no word from the API server for so long, kube-scheduler is to go on alone.
    """
    age_s = cache.age_s(now_s)
    details = {
        "synced": cache.synced,
        "watch_age_seconds": round(age_s, 1),
        "policy": policy.current.details(),
    }
    return web.Readiness(cache.synced and age_s < stale_s, details)


def build(settings: ExtenderSettings, connection: Configuration) -> Service:
    """The service, not started yet; `connection` is how to reach the API server."""
    api = Client(connection, user_agent="edl-extender")
    cache = ClusterCache(api, config_map=(settings.namespace, POLICY_CONFIGMAP))
    policy = ActivePolicy()
    if cache.config is not None:
        policy.follow(cache.config)
    metrics = Metrics("extender")
    age = metrics.gauge("watch_age_seconds", "Time since the quietest watch was heard of.")
    age.set_function(lambda: cache.age_s(clock.monotonic_s()))
    extender = Extender(cache, policy, metrics)

    app = web.application(
        settings.room,
        registry=metrics,
        readiness=lambda: readiness(cache, policy, clock.monotonic_s(), settings.stale_seconds),
        max_body_bytes=settings.max_body_bytes,
        clients_named=settings.client_ca is not None,
    )
    extender.routes(app)
    return Service(app, cache.start, cache.stop)
