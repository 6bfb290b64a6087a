"""The cost of a burst of services for the reconciler if it finds free capacity, with many idle trainers.

The real control loop over an API server in memory, in virtual time: services are created, get nodes and run
within five seconds, and the loop looks eight times a second. Figures are processor time.
"""

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from bench.benchmark import Result, Setting, grown
from bench.clusters import NOW_S
from e2e import workload
from e2e.cluster.nodes import node
from e2e.measure.criteria import Criterion
from kube import request
from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.request import CONFIGMAPS, JOBS, NODES, PODS, Request, Resource
from lab.fake_api import FakeApi
from lab.fake_api.streams import FakeStream
from policy.names import MANAGER, POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE
from policy.priority_classes import EDL_CLASSES
from reconciler.components import Clocks
from reconciler.loop import Reconciler
from reconciler.metrics import ReconcilerMetrics
from reconciler.records.events import EventRecorder
from reconciler.settings import ReconcilerSettings
from runtime.metrics import Metrics

Json = dict[str, Any]

LIMITS = {"burst_cpu_s": 0.5, "burst_longest_tick_ms": 40.0}
_JOBS = 58
_NODES_PER_TRAINER, _NODES_PER_SERVICE = 100 / 58, 10
_NODE_CPU = "16"
_POLICY = "scheduling: {extender: never}"
_TICKS, _TICK_S = 40, 0.125
_CREATING = 25
"""In the first of these ticks services are created."""
_BOUND_AFTER, _RUNNING_AFTER = 2, 5
"""Ticks after which each service has a node and runs."""
_MAX_SETTLING = 200
_QUIET_TICKS = 20
"""Ticks without a write or a new trainer after which the cluster is at rest."""


def run(setting: Setting) -> Result:
    """All sizes; the criteria apply to the largest."""
    rows = []
    for nodes in setting.sizes:
        setting.report_progress(f"burst, {nodes} nodes: trainers come to rest")
        world = _World(nodes)
        world.settle()
        setting.report_progress(f"burst, {nodes} nodes: services come")
        gc.collect()
        gc.freeze()  # the objects of the server are in another process, elsewhere
        rows.append(world.burst())
        gc.unfreeze()
    criteria = (
        Criterion(name, value, "s" if name.endswith("_s") else "ms", LIMITS.get(name))
        for name, value in rows[-1].items()
    )
    return Result(tuple(criteria), grown(rows))


@dataclass(slots=True)
class _Clock:
    """Virtual time."""

    now_s: float = NOW_S

    def seconds(self) -> float:
        """Returns the time."""
        return self.now_s

    def now(self) -> datetime:
        """Returns the same, for stamps."""
        return datetime.fromtimestamp(self.now_s, UTC)


class _Server(FakeApi):
    """An API server with the priorities of classes, whose watches give what there is, and end."""

    def send(self, request: Request) -> bytes:
        """See `kube.api.Api`."""
        if request.method == "POST" and request.path.endswith("/pods"):
            body = orjson.loads(request.body)
            values = EDL_CLASSES.get(body["spec"].get("priorityClassName", ""))
            if values is not None:
                body["spec"] |= {
                    "priority": values.value,
                    "preemptionPolicy": values.preemption_policy,
                }
                request = replace(request, body=orjson.dumps(body))
        return super().send(request)

    @contextmanager
    def stream(self, request: Request) -> Iterator[FakeStream]:
        """See `kube.api.Api`."""
        query = tuple((k, "0" if k == "timeoutSeconds" else v) for k, v in request.query)
        with super().stream(replace(request, query=query)) as stream:
            stream.bookmark()
            yield stream


class _World:
    """A cluster, its scheduler and kubelets, and a reconciler of which the benchmark makes each tick."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._services = nodes // _NODES_PER_SERVICE
        self._clock = _Clock()
        self._api = _Server(wall=self._clock.now, clock_s=self._clock.seconds)
        self._bound = 0
        """Pods that have got a node; each gets the next one."""
        self._create_objects()
        self._cache = ClusterCache(
            self._api,
            config_map=(SYSTEM_NAMESPACE, POLICY_CONFIGMAP),
            clock_s=self._clock.seconds,
        )
        self._loop = self._reconciler()

    def _create_objects(self) -> None:
        ready = {"type": "Ready", "status": "True"}
        for number in range(self._nodes):
            place = node(f"node-{number:05}", _NODE_CPU)
            place["status"]["conditions"] = [ready]
            self._create(NODES, None, place)
        config = {"metadata": {"name": POLICY_CONFIGMAP}, "data": {POLICY_KEY: _POLICY}}
        self._create(CONFIGMAPS, SYSTEM_NAMESPACE, config)
        most = max(2, round(self._nodes / _NODES_PER_TRAINER / _JOBS))
        scenario = replace(workload.QUICK, jobs=_JOBS, max_trainers=most)
        for name in scenario.job_names:
            job = workload.elastic_job(scenario, name)
            job["spec"]["managedBy"] = MANAGER
            self._create(JOBS, workload.TRAINING_NAMESPACE, job)

    def _reconciler(self) -> Reconciler:
        policy = ActivePolicy.of(self._cache.config)
        return Reconciler(
            self._api,
            ReconcilerSettings(),
            cache=self._cache,
            policy=policy,
            leads=lambda: True,
            recorder=EventRecorder(self._api, "bench", self._clock.now),
            metrics=ReconcilerMetrics(Metrics("reconciler")),
            clocks=Clocks(self._clock.seconds, self._clock.seconds),
        )

    def settle(self) -> None:
        """Lets trainers start until all run and EDL has nothing left to write."""
        quiet = 0
        for _ in range(_MAX_SETTLING):
            version = self._api.version
            self._tick()
            for pod in self._api.stored(PODS):
                if not pod["spec"].get("nodeName"):
                    self._bind(pod["metadata"])
                    self._start(pod["metadata"])
            self._clock.now_s += 1.0
            quiet = quiet + 1 if self._api.version == version else 0
            if quiet == _QUIET_TICKS:
                return
        raise RuntimeError("the trainers did not come to rest")

    def burst(self) -> dict[str, float]:
        """Plays the burst; the figures of the reconciler's processor time in it."""
        names = [f"services-{number:05}" for number in range(self._services)]
        waves = [names[number::_CREATING] for number in range(_CREATING)]
        ticks_s = []
        for tick in range(_TICKS):
            for act, after in (
                (self._create_service, 0),
                (self._bind, _BOUND_AFTER),
                (self._start, _RUNNING_AFTER),
            ):
                for name in waves[tick - after] if after <= tick < after + _CREATING else ():
                    act({"namespace": workload.SERVICES_NAMESPACE, "name": name})
            begun_s = time.process_time()
            self._tick()
            ticks_s.append(time.process_time() - begun_s)
            self._clock.now_s += _TICK_S
        return {"burst_cpu_s": sum(ticks_s), "burst_longest_tick_ms": max(ticks_s) * 1000}

    def _tick(self) -> None:
        for reflector in self._cache.reflectors.values():
            if reflector.follow_once():
                raise RuntimeError("the reconciler could not read the synthetic cluster")
        self._loop.tick()

    # What a scheduler, kubelets and users do

    def _create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        self._api.send(request.create(resource, namespace, body))

    def _create_service(self, metadata: Mapping[str, str]) -> None:
        owner = {
            "kind": "ReplicaSet",
            "name": "services",
            "uid": "uid-services",
            "controller": True,
        }
        body = {
            "metadata": {"name": metadata["name"], "ownerReferences": [owner]},
            "spec": workload.pod_spec("3", "3Gi") | {"priority": 100},
        }
        self._create(PODS, metadata["namespace"], body)

    def _bind(self, metadata: Mapping[str, str]) -> None:
        self._bound += 1
        spec = {"nodeName": f"node-{self._bound % self._nodes:05}"}
        self._change(metadata, {"spec": spec})

    def _start(self, metadata: Mapping[str, str]) -> None:
        stamp = self._clock.now().isoformat()
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp}
        status = {"phase": "Running", "startTime": stamp, "conditions": [ready]}
        self._change(metadata, {"status": status}, "status")

    def _change(self, metadata: Mapping[str, str], body: Json, subresource: str = "") -> None:
        where = metadata["namespace"], metadata["name"]
        self._api.send(request.merge_patch(PODS, *where, body, subresource=subresource))
