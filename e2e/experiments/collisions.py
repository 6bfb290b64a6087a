"""How often two schedulers assign the same capacity at once, and the cost for a service.

The worst case on purpose: again and again services and a training job come to empty nodes in the same
moment, and together they want nearly all of their CPU. Nodes refuse what does not fit (`e2e.kubelet`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table

from e2e import workload
from e2e.cluster.build import Binaries
from e2e.cluster.components import SchedulerOptions
from e2e.cluster.local import running
from e2e.control_plane import EdlControlPlane
from e2e.demo.run import nodes, recorded
from e2e.demo.script import Script, ScriptError
from e2e.demo.view import LiveView
from e2e.measure.pods import Kind
from e2e.measure.record import Recorder, Timeline
from e2e.measure.refusals import refusals
from e2e.scheduling import SchedulingMode
from e2e.workload import SERVICES, SERVICES_NAMESPACE, TRAINING_NAMESPACE, Scenario
from kube import request
from kube.client import Client
from kube.request import DEPLOYMENTS, JOBS
from runtime import clock

SCENARIO = Scenario(
    name="collisions",
    big_nodes=40,
    small_nodes=0,
    system_cpu_millis=0,
    services=(0, 120),
    step_s=8.0,
    jobs=1,
    job_gap_s=0.0,
    pservers=0,
    min_trainers=2,
    max_trainers=60,
    warm_up_s=0.0,
)
"""720 CPU; services want half of it, and a job 300."""
_WAIT_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class CollisionOutcome:
    """The outcome of the rounds in one mode."""

    mode: str
    rounds: int
    bound: dict[str, int]
    """Kind -> pods that got a node."""
    refused: dict[str, int]
    """Kind -> pods that their node refused."""
    service_start_s: tuple[float, float]
    """Creation until it runs, of services that were not refused: mean and worst."""
    refused_services_s: tuple[float | None, ...]
    """From the binding of a refused service until another ran in its place; None for never."""


def play(
    binaries: Binaries, directory: Path, view: LiveView, mode: SchedulingMode, rounds: int
) -> CollisionOutcome:
    """Plays the rounds on a separate cluster; `directory` keeps the logs.

    Raises:
        ClusterError: the cluster did not start.
        ControlPlaneError: EDL did not start.
        ScriptError: pods did not come or go in time.
    """
    control_plane = EdlControlPlane(directory, mode=mode)
    scheduler = SchedulerOptions(control_plane.scheduler)
    with (
        running(directory, scheduler=scheduler, binaries=binaries) as cluster,
        recorded(cluster, SCENARIO.cpu_millis) as (api, recorder),
        control_plane.installed_in(cluster),
    ):
        script = Script(
            api,
            recorder,
            SCENARIO,
            view,
            plain=False,
            clock_s=clock.monotonic_s,
            sleep=time.sleep,
        )
        script.prepare(nodes(SCENARIO))
        script.create(workload.services(SCENARIO))
        recorder.begin()
        for number in range(1, rounds + 1):
            view.say(f"{mode}: round {number} of {rounds}")
            _round(script, api, recorder, f"job-{number}")
        return outcome(recorder.timeline(SCENARIO.cpu_millis), mode, rounds)


def outcome(timeline: Timeline, mode: str, rounds: int) -> CollisionOutcome:
    """Returns the counts of a finished run."""
    bound = [pod for pod in timeline.lifetimes if pod.bound_s is not None]
    refused = refusals(timeline)
    starts_s = [
        pod.running_s - pod.created_s
        for pod in bound
        if pod.kind is Kind.SERVICE and pod.running_s is not None and pod.refused_s is None
    ]
    kinds = (Kind.SERVICE.value, Kind.TRAINER.value)
    return CollisionOutcome(
        mode=str(mode),
        rounds=rounds,
        bound={kind: sum(pod.kind == kind for pod in bound) for kind in kinds},
        refused={kind: sum(pod.kind == kind for pod in refused) for kind in kinds},
        service_start_s=(fmean(starts_s or [0.0]), max(starts_s, default=0.0)),
        refused_services_s=tuple(pod.replaced_s for pod in refused if pod.kind is Kind.SERVICE),
    )


def document(outcomes: Sequence[CollisionOutcome]) -> dict[str, Any]:
    """Returns the outcomes for the report's JSON."""
    return {outcome.mode: asdict(outcome) for outcome in outcomes}


def table(outcomes: Sequence[CollisionOutcome]) -> Table:
    """Returns the outcomes for a terminal."""
    result = Table(title="room given away twice", title_justify="left")
    result.add_column("scheduling")
    for heading in (
        *("rounds", "services bound", "refused", "trainers bound", "refused"),
        *("a service starts after, mean / worst, s", "a refused one, mean / worst, s"),
    ):
        result.add_column(heading, justify="right")
    for row in outcomes:
        paid_s = [time_s for time_s in row.refused_services_s if time_s is not None]
        result.add_row(
            row.mode,
            str(row.rounds),
            str(row.bound[Kind.SERVICE]),
            str(row.refused[Kind.SERVICE]),
            str(row.bound[Kind.TRAINER]),
            str(row.refused[Kind.TRAINER]),
            "{:.2f} / {:.2f}".format(*row.service_start_s),
            f"{fmean(paid_s):.2f} / {max(paid_s):.2f}" if paid_s else "-",
        )
    return result


def _round(script: Script, api: Client, recorder: Recorder, job: str) -> None:
    """Services and a job come at once, stay for a while, and go."""
    _, services = SCENARIO.services
    begun_s = clock.monotonic_s()
    _scale(api, services)
    script.create(workload.elastic_job(SCENARIO, job))
    _wait("services run", lambda: recorder.counts().at_work(Kind.SERVICE) == services)
    time.sleep(max(0.0, begun_s + SCENARIO.step_s - clock.monotonic_s()))
    api.send(request.delete(JOBS, TRAINING_NAMESPACE, job))
    _scale(api, 0)
    _wait("nothing runs", lambda: recorder.counts().cpu_millis == 0)


def _scale(api: Client, replicas: int) -> None:
    body = {"spec": {"replicas": replicas}}
    api.send(request.merge_patch(DEPLOYMENTS, SERVICES_NAMESPACE, SERVICES, body))


def _wait(condition: str, is_so: Callable[[], bool]) -> None:
    deadline_s = clock.monotonic_s() + _WAIT_S
    while not is_so():
        if clock.monotonic_s() > deadline_s:
            raise ScriptError(f"timed out: {condition}")
        time.sleep(_POLL_S)
