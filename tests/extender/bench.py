"""An extender on a cluster in memory, asked through its routes."""

from typing import Any

import orjson

from extender.app import Extender, readiness
from extender.settings import ExtenderSettings
from kube import request
from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.request import CONFIGMAPS, JOBS, NODES, PODS
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE
from runtime import web
from runtime.metrics import Metrics
from tests.reconciler import objects
from tests.reconciler.server import Clock, Instant, look

NO_COOLING = '{"stability": {"coolDownSeconds": 0}}'
MAX_BYTES = 50_000
EPOCH_S = 1_700_000_000.0
"""The time of day, on another clock than that of promises."""
STALE_S = ExtenderSettings().stale_seconds


class Bench:
    """Everything but the server around it."""

    def __init__(self, policy: str = NO_COOLING) -> None:
        self.clock = Clock()
        self.api = Instant(self.clock)
        body = {"metadata": {"name": POLICY_CONFIGMAP}, "data": {POLICY_KEY: policy}}
        self.api.ask(request.create(CONFIGMAPS, SYSTEM_NAMESPACE, body))
        self.cache = ClusterCache(
            self.api,
            config_map=(SYSTEM_NAMESPACE, POLICY_CONFIGMAP),
            clock_s=self.clock.seconds,
        )
        active = ActivePolicy.of(self.cache.config)
        self.metrics = Metrics("extender")
        app = web.application(
            "extender",
            registry=self.metrics,
            readiness=lambda: readiness(
                self.cache, active, self.clock.seconds(), STALE_S, extender.last_requests
            ),
            max_body_bytes=MAX_BYTES,
        )
        extender = Extender(self.cache, active, self.metrics, self.clock.seconds, lambda: EPOCH_S)
        extender.routes(app)
        self.client = app.test_client()

    def look(self) -> None:
        """Lets the extender see what there is."""
        look(self.cache)

    def add_node(self, name: str, cpu: int) -> None:
        """A node."""
        self.api.ask(request.create(NODES, None, objects.node(name, cpu)))

    def add_job(self, name: str) -> None:
        """An elastic Job."""
        self.api.ask(request.create(JOBS, "ml", objects.job(name)))

    def add_pod(self, body: dict[str, Any]) -> Any:
        """A pod as the API server has it."""
        return self.api.ask(request.create(PODS, body["metadata"]["namespace"], body))

    def change_pod(self, pod: Any, body: dict[str, Any], subresource: str = "") -> None:
        """A merge patch."""
        meta = pod["metadata"]
        patch = request.merge_patch(
            PODS, meta["namespace"], meta["name"], body, subresource=subresource
        )
        self.api.ask(patch)

    def drop_pod(self, pod: Any) -> None:
        """A pod is gone."""
        meta = pod["metadata"]
        self.api.ask(request.delete(PODS, meta["namespace"], meta["name"], grace_s=0))

    def ask(self, verb: str, body: object) -> Any:
        """What kube-scheduler reads; only 200 counts for it."""
        answer = self.client.post(f"/{verb}", json=body)
        assert answer.status_code == 200, answer.text
        return orjson.loads(answer.data)

    def keeps(self, pod: Any, *nodes: str) -> Any:
        """The nodes that filter keeps for a pod."""
        return self.ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})["NodeNames"]

    def preempts(self, pod: Any, **victims: list[Any]) -> dict[str, list[str]]:
        """Node -> uids that the extender chooses, given pods on nodes to choose from."""
        headers = {
            node: {"Pods": [{"UID": v["metadata"]["uid"]} for v in pods], "NumPDBViolations": 0}
            for node, pods in victims.items()
        }
        answer = self.ask("preempt", {"Pod": pod, "NodeNameToMetaVictims": headers})
        return {
            node: [victim["UID"] for victim in chosen["Pods"]]
            for node, chosen in answer["NodeNameToMetaVictims"].items()
        }

    def value(self, line: str) -> str:
        """The value of a sample in the scrape, by name and labels."""
        lines = self.metrics.text().decode().splitlines()
        return next(sample.rpartition(" ")[2] for sample in lines if sample.startswith(line + " "))
