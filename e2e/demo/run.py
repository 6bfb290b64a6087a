"""Plays a scenario on a separate cluster and measures it: once for EDL, once for plain."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.build import Binaries
from e2e.cluster.components import COMPONENTS, SchedulerOptions
from e2e.cluster.local import Cluster, running
from e2e.cluster.nodes import node
from e2e.control_plane import EdlControlPlane
from e2e.demo.script import Script
from e2e.demo.view import LiveView
from e2e.in_cluster import edl_beside_played_nodes
from e2e.kubelet import Admission
from e2e.measure.criteria import Figures, measure
from e2e.measure.curves import Curves
from e2e.measure.pods import PodView
from e2e.measure.pods import view as pod_view
from e2e.measure.processes import busy_seconds, cpu_seconds, others_percent
from e2e.measure.record import Recorder, Timeline
from e2e.scheduling import SchedulingMode
from e2e.workload import Manifest, Scenario
from kube import request
from kube.client import Client
from kube.config import load
from kube.reflector import Reflector
from policy.names import SYSTEM_NAMESPACE
from runtime import clock

_SYNC_S = 30.0
PLAIN = "plain Kubernetes"
EDL = "EDL"
EDL_IN_CLUSTER = "EDL in the cluster"
EDL_OVERCOMMIT = "EDL with overcommit"


@dataclass(frozen=True, slots=True)
class Run:
    """One run and its measurements."""

    name: str
    curves: Curves
    figures: Figures


def play(
    binaries: Binaries,
    directory: Path,
    scenario: Scenario,
    view: LiveView,
    mode: SchedulingMode | None,
    *,
    in_cluster: bool = False,
) -> Run:
    """Starts a cluster, plays the scenario, stops everything; `directory` keeps the logs.

    Args:
        binaries: The cluster's programs.
        directory: Emptied first.
        scenario: What to play.
        view: Where to show it.
        mode: How EDL stands beside kube-scheduler; None for plain Kubernetes, without EDL.
        in_cluster: EDL's servers are pods on a real node, with the extender; what they use of the CPU is then
            not told apart from what others use.

    Raises:
        ClusterError: the cluster did not start.
        ControlPlaneError: EDL did not start.
        ScriptError: the run could not continue.
    """
    begun_s, busy_s = clock.monotonic_s(), busy_seconds()
    name = PLAIN if mode is None else EDL_IN_CLUSTER if in_cluster else _title(mode, scenario)
    view.say(f"{name}: starting the cluster")
    processes = None if mode is None or in_cluster else EdlControlPlane(directory, mode=mode)
    with _cluster(binaries, directory, processes, in_cluster=in_cluster) as cluster:
        view.say(f"cluster ready after {clock.monotonic_s() - begun_s:.1f} s")
        try:
            timeline, cpu_s = _measured(cluster, processes, scenario, view, plain=mode is None)
        finally:
            view.say(f"{name}: stopping everything")
    wall_s = clock.monotonic_s() - begun_s
    figures = measure(
        timeline,
        min_trainers=scenario.min_trainers,
        warm_up_s=scenario.warm_up_s,
        demo_s=wall_s,
        cpu_s=cpu_s,
        edl=() if processes is None else processes.components,
        others_percent=others_percent(busy_seconds() - busy_s, sum(cpu_s.values()), wall_s),
    )
    return Run(name, Curves(timeline), figures)


@contextmanager
def _cluster(
    binaries: Binaries, directory: Path, processes: EdlControlPlane | None, *, in_cluster: bool
) -> Iterator[Cluster]:
    """The cluster; EDL is in it already where it runs as pods, and no other pod gets to its node."""
    if in_cluster:
        directory.mkdir(parents=True, exist_ok=True)
        with edl_beside_played_nodes(directory) as bare:
            for name in bare.cluster.real_nodes:
                bare.kubectl("cordon", name)
            yield bare.cluster
        return
    scheduler = SchedulerOptions({} if processes is None else processes.scheduler)
    with running(directory, scheduler=scheduler, binaries=binaries) as cluster:
        yield cluster


def _title(mode: SchedulingMode, scenario: Scenario) -> str:
    """Returns the name of a run with EDL."""
    if scenario.overcommit > 1.0:
        return EDL_OVERCOMMIT
    return EDL if mode is SchedulingMode.EXTENDER else f"{EDL}, {mode}"


def _measured(
    cluster: Cluster,
    control_plane: EdlControlPlane | None,
    scenario: Scenario,
    view: LiveView,
    *,
    plain: bool,
) -> tuple[Timeline, dict[str, float]]:
    """What happened to every pod, and the CPU seconds of every process."""
    with (
        recorded(cluster, scenario.cpu_millis) as (api, recorder),
        _beside(control_plane, cluster, view),
    ):
        script = Script(
            api,
            recorder,
            scenario,
            view,
            plain=plain,
            clock_s=clock.monotonic_s,
            sleep=time.sleep,
        )
        script.prepare(nodes(scenario))
        script.play()
        return recorder.timeline(scenario.cpu_millis), _cpu_seconds(cluster, control_plane)


@contextmanager
def recorded(cluster: Cluster, cpu_millis: Mapping[str, int]) -> Iterator[tuple[Client, Recorder]]:
    """An administrator's client, and a recorder that follows all pods of the cluster.

    Nodes, which have this much CPU each, refuse pods that do not fit.
    """
    api = Client(load(cluster.admin), user_agent="edl-demo")
    recorder = Recorder(clock.monotonic_s)
    pods = Reflector(api, request.PODS, _load)
    pods.listen(recorder.change)
    with Admission(api, cpu_millis).playing() as admission:
        pods.listen(admission.change)
        pods.start()
        try:
            deadline_s = clock.monotonic_s() + _SYNC_S
            while not pods.synced and clock.monotonic_s() < deadline_s:
                time.sleep(0.02)
            yield api, recorder
        finally:
            pods.stop()
            api.close()


def _load(pod: Mapping[str, Any]) -> PodView | None:
    """Returns the view of a pod that belongs to the load, which EDL's own pods do not."""
    return None if pod["metadata"]["namespace"] == SYSTEM_NAMESPACE else pod_view(pod)


def _beside(
    control_plane: EdlControlPlane | None, cluster: Cluster, view: LiveView
) -> AbstractContextManager[object]:
    if control_plane is None:
        return nullcontext()
    view.say(f"starting EDL: {', '.join(control_plane.components)}")
    return control_plane.installed_in(cluster)


def _cpu_seconds(cluster: Cluster, control_plane: EdlControlPlane | None) -> dict[str, float]:
    """Process -> CPU seconds so far, the demo's own included."""
    pids = {name: cluster.pid(name) for name in COMPONENTS}
    pids |= {} if control_plane is None else control_plane.pids
    used = {name: round(cpu_seconds(pid), 2) for name, pid in pids.items()}
    return used | {"demo": round(time.process_time(), 2)}


def nodes(scenario: Scenario) -> Iterable[Manifest]:
    """Returns the scenario's nodes as kwok plays them."""
    return [
        node(name, cpu=f"{millis}m", memory="96Gi", pods=110)
        for name, millis in scenario.cpu_millis.items()
    ]
