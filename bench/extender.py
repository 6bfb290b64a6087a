"""Latency of the extender: through its real routes, and of its handlers alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import orjson
from werkzeug.test import create_environ

from bench import objects
from bench.benchmark import Result, Setting, Times, grown
from bench.clusters import NOW_S, cluster, service, trainer
from bench.replay_api_server import ReplayApiServer
from bench.shapes import SERVICES
from e2e.measure.criteria import Criterion
from extender import handlers
from extender.app import Extender
from kube.active import ActivePolicy
from kube.cache import ClusterCache
from policy.cluster.snapshot import Snapshot
from policy.names import POLICY_CONFIGMAP, SYSTEM_NAMESPACE, Tier
from runtime import web
from runtime.metrics import Metrics

LIMITS = {"filter_5000_ms": 10.0, "prioritize_5000_ms": 10.0}
CANDIDATES = 100
"""kube-scheduler sends a tenth of the nodes as candidates, at least 100."""

_HANDLERS = {"filter": "filter_nodes", "prioritize": "prioritize", "preempt": "preempt"}
_MAX_BODY_BYTES = 8 << 20
_PODS_CHANGED = 6
_NODES_CHANGED = 2
_VICTIMS = 3


def run(setting: Setting) -> Result:
    """All sizes; the criteria apply to the largest."""
    rows, raw = [], {}
    for nodes in setting.sizes:
        setting.report_progress(f"extender, {nodes} nodes: first lists")
        harness = _ExtenderHarness(cluster(nodes))
        setting.report_progress(f"extender, {nodes} nodes: {setting.rounds} rounds of requests")
        with harness.watched():
            for number in range(setting.rounds):
                harness.round(number)
        rows.append({"after_start_ms": harness.start_ms} | _row(harness.times))
        raw[str(nodes)] = {name: times.figures() for name, times in harness.times.items()}
    renamed = {"filter_ms": "filter_5000_ms", "prioritize_ms": "prioritize_5000_ms"}
    named = {renamed.get(name, name): value for name, value in rows[-1].items()}
    criteria = (Criterion(name, value, "ms", LIMITS.get(name)) for name, value in named.items())
    return Result(tuple(criteria), grown(rows), raw)


def _row(times: dict[str, Times]) -> dict[str, float]:
    """Returns the figures per verb: first request after changes, its handler alone, and a repetition."""
    row = {}
    for verb in _HANDLERS:
        row[f"{verb}_ms"] = times[f"{verb} first"].median
        row[f"{verb}_worst_ms"] = times[f"{verb} first"].worst
        row[f"{verb}_handler_ms"] = times[f"{verb} first handler"].median
        row[f"{verb}_repeated_ms"] = times[f"{verb} again"].median
    return row


class _ExtenderHarness:
    """An extender with requests as from kube-scheduler and a cluster that changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        kinds = ("first", "again", "first handler", "again handler")
        self.times = {f"{verb} {kind}": Times() for verb in _HANDLERS for kind in kinds}
        self._kind = "first"
        self._snapshot = snapshot
        self._names = [node.name for node in snapshot.nodes]
        self._surplus = [p for p in snapshot.pods if p.tier is Tier.SURPLUS and p.node]
        self._server = ReplayApiServer(snapshot)
        self._cache = ClusterCache(self._server, config_map=(SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
        self._app = application(self._cache)
        self._random = Random(1)  # noqa: S311 - repeatable on purpose
        self._look()
        self.start_ms = self._first_answer_ms()

    def _look(self) -> None:
        for reflector in self._cache.reflectors.values():
            if reflector.follow_once():
                raise RuntimeError("the extender could not read the synthetic cluster")

    def _first_answer_ms(self) -> float:
        """Returns the duration of the first request after the start, which builds the cluster state."""
        self._ask("filter", orjson.dumps(self._question(0)))
        return self.times["filter first"].values.pop()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Records the handlers' durations, in addition to those of the requests."""
        plain = {verb: getattr(handlers, name) for verb, name in _HANDLERS.items()}
        try:
            for verb, name in _HANDLERS.items():
                setattr(handlers, name, self._timed(verb, plain[verb]))
            yield
        finally:
            for verb, name in _HANDLERS.items():
                setattr(handlers, name, plain[verb])

    def _timed(self, verb: str, plain: Callable[..., object]) -> Callable[..., object]:
        def timed(*args: Any, **kwargs: Any) -> object:
            return self.times[f"{verb} {self._kind} handler"].run(lambda: plain(*args, **kwargs))

        return timed

    def round(self, number: int) -> None:
        """Sends each verb once after some changes, and once more without changes."""
        names = self._question(number)
        bodies = {"filter": names, "prioritize": names, "preempt": self._preemption(number)}
        for verb, body in bodies.items():
            self._change(number)
            for self._kind in ("first", "again"):
                self._ask(verb, orjson.dumps(body))

    def _ask(self, verb: str, body: bytes) -> None:
        environ = create_environ(
            f"/{verb}", method="POST", data=body, content_type="application/json"
        )
        statuses: list[str] = []

        def begin(status: str, *_: object) -> Callable[[bytes], object]:
            statuses.append(status)
            return lambda _: None

        self.times[f"{verb} {self._kind}"].run(lambda: b"".join(self._app(environ, begin)))
        if not statuses[0].startswith("200"):
            raise RuntimeError(f"the extender answered {verb} with {statuses[0]}")

    def _question(self, number: int) -> dict[str, object]:
        """Returns a request for a surplus trainer; the jobs take turns."""
        jobs = self._snapshot.jobs
        owner = jobs[number % len(jobs)]
        pod = trainer(owner, 10_000 + number, tier=Tier.SURPLUS, created_s=NOW_S)
        return {"Pod": objects.pod(pod), "Nodes": None, "NodeNames": self._names}

    def _preemption(self, number: int) -> dict[str, object]:
        """Returns a preemption request of a service, with surplus trainers as victims on many nodes."""
        pod = service(f"preemptor-{number}", "shop", SERVICES[number % len(SERVICES)])
        victims: dict[str, list[dict[str, str]]] = {}
        for surplus_pod in self._surplus:
            if surplus_pod.node in victims or len(victims) < CANDIDATES:
                node_victims = victims.setdefault(surplus_pod.node, [])
                if len(node_victims) < _VICTIMS:
                    node_victims.append({"UID": surplus_pod.uid})
        meta = {node: {"Pods": uids, "NumPDBViolations": 0} for node, uids in victims.items()}
        return {"Pod": objects.pod(pod), "NodeNameToMetaVictims": meta}

    def _change(self, number: int) -> None:
        """Recreates some trainers, and changes a label of some nodes."""
        for pod in self._random.sample(self._surplus, min(_PODS_CHANGED, len(self._surplus))):
            self._server.drop_pod(pod)
            self._look()
            self._server.put_pod(pod)
        for node in self._random.sample(self._snapshot.nodes, _NODES_CHANGED):
            label = {"example.com/round": str(number)}
            self._server.put_node(replace(node, labels={**node.labels, **label}))
        self._look()


def application(cache: ClusterCache) -> web.WebApp:
    """Returns the application of `extender.app.build`, without a server."""
    active = ActivePolicy.of(cache.config)
    metrics = Metrics("extender")
    app = web.application(
        "extender",
        registry=metrics,
        readiness=lambda: web.Readiness(ready=True),
        max_body_bytes=_MAX_BODY_BYTES,
    )
    Extender(cache, active, metrics).routes(app)
    return app
