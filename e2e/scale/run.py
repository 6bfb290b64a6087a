"""Plays trainers and a burst of services on many simulated nodes, and measures what that costs."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson
import urllib3

from e2e import workload
from e2e.cluster.build import Binaries
from e2e.cluster.components import COMPONENTS, ClusterLayout, SchedulerOptions
from e2e.cluster.local import Cluster, running
from e2e.cluster.nodes import count_ready, node
from e2e.control_plane import EdlControlPlane
from e2e.measure.processes import busy_seconds, cpu_seconds, others_percent
from e2e.scale.figures import PhaseFigures, ScaleFigures, ended_watches, requests
from e2e.scheduling import SchedulingMode
from e2e.workload import QUICK, SERVICES_NAMESPACE, TRAINING_NAMESPACE, Manifest, Scenario
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import KubeError
from kube.request import RESOURCES, Resource
from policy.names import SCHEDULING_CONFIGMAP, SYSTEM_NAMESPACE
from runtime import clock

_BY_KIND: dict[str, Resource] = {resource.kind: resource for resource in RESOURCES}
_JOBS = 58
_TRAINERS_PER_NODE = 2.9
_MAX_TRAINERS = 2900
_SERVICES_PER_TRAINER = 500 / 2900
_NODE_CPU = "16"
"""Three trainers of 5 CPU; a service of 3 CPU does not fit beside them."""
_CREATORS = 8
_POLL_S = 0.5
_BURST_POLL_S = 0.25
_REST_S = 4.0
"""Writes that a phase left for later belong to it."""
_READY_S = 600.0
_PHASE_S = 1800.0
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""Asks for tables without objects, so that counting pods costs the API server little."""


class ScaleError(Exception):
    """The run cannot continue; the message is one line that names the missed condition."""


class Variant(StrEnum):
    """The controller of the trainers."""

    PLAIN = "plain ReplicaSets"
    EXTENDER = "EDL with the extender"
    NO_EXTENDER = "EDL without the extender"


_MODES = {
    Variant.EXTENDER: SchedulingMode.EXTENDER,
    Variant.NO_EXTENDER: SchedulingMode.WITHOUT_EXTENDER,
}


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a run."""

    nodes: int

    @property
    def scenario(self) -> Scenario:
        """58 jobs that fill the nodes nearly, with at most 2 900 trainers in all."""
        trainers = min(_MAX_TRAINERS, round(self.nodes * _TRAINERS_PER_NODE))
        per_job = max(2, trainers // _JOBS)
        return replace(QUICK, name=f"{self.nodes} nodes", jobs=_JOBS, max_trainers=per_job)

    @property
    def trainers(self) -> int:
        """Trainers of all jobs."""
        return self.scenario.jobs * self.scenario.max_trainers

    @property
    def services(self) -> int:
        """Services of the burst."""
        return round(self.trainers * _SERVICES_PER_TRAINER)


def play(binaries: Binaries, directory: Path, scale: Scale, variant: Variant) -> ScaleFigures:
    """Starts a cluster, plays both phases, stops everything; `directory` keeps the logs.

    Raises:
        ClusterError: the cluster did not start.
        ControlPlaneError: EDL did not start.
        ScaleError: pods did not get to run in time.
    """
    plain = variant is Variant.PLAIN
    mode = _MODES.get(variant)
    control_plane = None if mode is None else EdlControlPlane(directory, mode=mode)
    options = SchedulerOptions({} if control_plane is None else control_plane.scheduler)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(running(directory, scheduler=options, binaries=binaries))
        if control_plane is not None:
            stack.enter_context(control_plane.installed_in(cluster))
        if control_plane is not None and mode is SchedulingMode.WITHOUT_EXTENDER:
            control_plane.kill("extender")  # nobody would ask it
        bench = stack.enter_context(_bench(cluster, directory, control_plane))
        bench.prepare(scale, plain=plain)
        bench.warm_up(scale)
        begun_s, busy_s = clock.monotonic_s(), busy_seconds()
        trainers = bench.start_trainers(scale, plain=plain)
        burst = bench.burst(scale)
        wall_s = clock.monotonic_s() - begun_s
        ours_s = sum(trainers.cpu_s.values()) + sum(burst.cpu_s.values())
        return ScaleFigures(
            trainers, burst, others_percent(busy_seconds() - busy_s, ours_s, wall_s)
        )


@contextmanager
def _bench(
    cluster: Cluster, directory: Path, control_plane: EdlControlPlane | None
) -> Iterator["_Bench"]:
    api = Client(load(cluster.admin), user_agent="edl-scale")
    pki = ClusterLayout(directory.resolve()).pki
    pool = urllib3.PoolManager(
        ca_certs=str(pki("ca.crt")),
        cert_file=str(pki("admin.crt")),
        key_file=str(pki("admin.key")),
        retries=False,
    )
    try:
        yield _Bench(cluster, control_plane, api, pool)
    finally:
        pool.clear()
        api.close()


class _Bench:
    """One cluster, with the operations of the measurement."""

    def __init__(
        self,
        cluster: Cluster,
        control_plane: EdlControlPlane | None,
        api: Client,
        pool: urllib3.PoolManager,
    ) -> None:
        self._cluster = cluster
        self._control_plane = control_plane
        self._api = api
        self._pool = pool

    def prepare(self, scale: Scale, *, plain: bool) -> None:
        """Creates nodes, namespaces and priority classes; returns when all is at rest."""
        manifests = [*workload.namespaces(), workload.service_class()]
        manifests += workload.plain_classes() if plain else ()
        manifests += [node(f"node-{i:04}", _NODE_CPU) for i in range(scale.nodes)]
        with ThreadPoolExecutor(_CREATORS) as creators:
            list(creators.map(self._create, manifests))
        self._wait("nodes ready", lambda: count_ready(self._api), scale.nodes, _READY_S, _POLL_S)
        if self._control_plane is not None:
            absent = self._control_plane.mode is SchedulingMode.WITHOUT_EXTENDER
            state = "missing" if absent else "registered"
            self._wait(f"extender {state}", lambda: self._registration() == state, 1, _READY_S)
        time.sleep(_REST_S)

    def warm_up(self, scale: Scale) -> None:
        """Plays as many pods as there will be trainers, and removes them.

        The API server gives a watch a buffer for one second of what changed before it began, and ten events at
        least. So the first pods after a quiet time end nearly all watches, and their clients list all pods again. Which
        phase of which variant would pay for that is chance.
        """
        manifest = workload.services(replace(scale.scenario, services=(scale.trainers,)))
        self._create(manifest)
        pods, poll_s = scale.trainers, _POLL_S
        self._wait(
            "pods running", lambda: self._running(SERVICES_NAMESPACE), pods, _PHASE_S, poll_s
        )
        name = manifest["metadata"]["name"]
        self._api.send(request.delete(request.DEPLOYMENTS, SERVICES_NAMESPACE, name))
        self._wait("pods gone", lambda: not self._pods(SERVICES_NAMESPACE), 1, _PHASE_S, poll_s)
        time.sleep(_REST_S)

    def start_trainers(self, scale: Scale, *, plain: bool) -> PhaseFigures:
        """Submits all jobs at once; returns when all their trainers run."""
        scenario, make = scale.scenario, workload.plain_trainers if plain else workload.elastic_job
        manifests = [make(scenario, job) for job in scenario.job_names]
        return self._phase(manifests, TRAINING_NAMESPACE, scale.trainers, _POLL_S)

    def burst(self, scale: Scale) -> PhaseFigures:
        """Creates the services at once; returns when all run."""
        manifest = workload.services(replace(scale.scenario, services=(scale.services,)))
        return self._phase([manifest], SERVICES_NAMESPACE, scale.services, _BURST_POLL_S)

    def _phase(
        self, manifests: list[Manifest], namespace: str, pods: int, poll_s: float
    ) -> PhaseFigures:
        cpu_s, metrics = self._cpu_seconds(), self._metrics()
        begun_s = clock.monotonic_s()
        for manifest in manifests:
            self._create(manifest)
        self._wait("pods running", lambda: self._running(namespace), pods, _PHASE_S, poll_s)
        seconds = clock.monotonic_s() - begun_s
        time.sleep(_REST_S)
        after = self._metrics()
        return PhaseFigures(
            pods,
            seconds,
            {name: used - cpu_s[name] for name, used in self._cpu_seconds().items()},
            dict(requests(after) - requests(metrics)),
            ended_watches(after) - ended_watches(metrics),
        )

    def _create(self, manifest: Manifest) -> None:
        resource = _BY_KIND[manifest["kind"]]
        self._api.send(request.create(resource, manifest["metadata"].get("namespace"), manifest))

    def _registration(self) -> str:
        read = request.get(request.CONFIGMAPS, SYSTEM_NAMESPACE, SCHEDULING_CONFIGMAP)
        try:
            data: Mapping[str, Any] = orjson.loads(self._api.send(read)).get("data") or {}
        except KubeError:
            return ""
        return str(data.get("extender", ""))

    def _running(self, namespace: str) -> int:
        """Pods of a namespace in phase Running."""
        return self._pods(namespace, "fieldSelector=status.phase%3DRunning&")

    def _pods(self, namespace: str, selector: str = "") -> int:
        query = f"{selector}resourceVersion=0&includeObject=None"
        path = request.path_of(request.PODS, namespace)
        table = orjson.loads(self._get(f"{path}?{query}", _TABLE))
        return len(table.get("rows") or ())

    def _metrics(self) -> str:
        return self._get("/metrics", "text/plain").decode()

    def _get(self, target: str, accept: str) -> bytes:
        response = self._pool.request(
            "GET", self._cluster.url + target, headers={"Accept": accept}, timeout=30.0
        )
        return bytes(response.data)

    def _cpu_seconds(self) -> dict[str, float]:
        pids = {name: self._cluster.pid(name) for name in COMPONENTS}
        pids |= {} if self._control_plane is None else self._control_plane.pids
        return {name: cpu_seconds(pid) for name, pid in pids.items()}

    def _wait(
        self,
        what: str,
        count: Callable[[], int],
        wanted: int,
        within_s: float,
        poll_s: float = _POLL_S,
    ) -> None:
        deadline_s = clock.monotonic_s() + within_s
        while (reached := int(count())) < wanted:
            if clock.monotonic_s() > deadline_s:
                raise ScaleError(f"{what}: {reached} of {wanted} after {within_s:.0f} s")
            if os.environ.get("SCALE_TRACE"):
                print(what, reached, round(deadline_s - clock.monotonic_s(), 1), flush=True)
            time.sleep(poll_s)
