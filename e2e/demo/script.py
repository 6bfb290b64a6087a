"""The run itself: nodes, system pods, services, jobs, and then services come and go.

Knows an API server and a recorder, not where they come from; the same script plays plain
Kubernetes and EDL. All waiting goes through `Script`, which ticks the view meanwhile.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import orjson

from e2e import workload
from e2e.cluster.nodes import count_ready
from e2e.demo.view import LiveView, Scene
from e2e.measure.pods import Kind
from e2e.measure.record import Recorder
from e2e.workload import Manifest, Scenario
from kube import request
from kube.api import Api
from kube.request import RESOURCES, Resource
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE

_TICK_S = 0.05
_READY_PERIOD_S = 0.5
_NODES_S = 60.0
_PODS_S = 120.0
_BY_KIND: dict[str, Resource] = {resource.kind: resource for resource in RESOURCES}


class ScriptError(Exception):
    """The run cannot continue; the message is one line that names the missed condition."""


class Script:
    """One run of a scenario."""

    def __init__(
        self,
        api: Api,
        recorder: Recorder,
        scenario: Scenario,
        view: LiveView,
        *,
        plain: bool,
        clock_s: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """Sends nothing yet.

        Args:
            api: As an administrator.
            recorder: Follows the pods already.
            scenario: What to play.
            view: Where to show it.
            plain: Training as ReplicaSets of low priority, without EDL.
            clock_s: The recorder's clock.
            sleep: Waits that many seconds.
        """
        self._api = api
        self._recorder = recorder
        self._scenario = scenario
        self._view = view
        self._plain = plain
        self._clock_s = clock_s
        self._sleep = sleep
        self._end_s: float | None = None
        self.scene = Scene(
            title="plain Kubernetes priorities" if plain else "EDL: elastic training on Kubernetes",
            max_trainers=scenario.max_trainers,
            total_millis=sum(scenario.cpu_millis.values()),
        )

    def prepare(self, nodes: Iterable[Manifest]) -> None:
        """Nodes, namespaces, priority classes and system pods; returns when all that runs."""
        nodes = list(nodes)
        self._do(f"creating {len(nodes)} nodes")
        for manifest in workload.namespaces():
            self.create(manifest)
        self.create(workload.service_class())
        for manifest in workload.plain_classes() if self._plain else ():
            self.create(manifest)
        self._set_policy(workload.policy(self._scenario))
        for manifest in nodes:
            self.create(manifest)
            self._tick()
        self._wait_nodes(len(nodes))
        self._do(f"starting {self._scenario.system_pods} system pods")
        for manifest in workload.system(self._scenario):
            self.create(manifest)
        self._wait_running(Kind.SYSTEM, self._scenario.system_pods)

    def play(self) -> None:
        """Services, then jobs, then the steps; returns at the end of the last plateau."""
        self._recorder.begin()
        self._first_services()
        self._end_s = self._clock_s() + self._scenario.seconds
        self._jobs()
        for before, after in pairwise(self._scenario.services):
            self._step(before, after)

    def create(self, manifest: Manifest) -> dict[str, Any]:
        """Creates one object and returns it as the API server made it."""
        resource = _BY_KIND[manifest["kind"]]
        sent = request.create(resource, manifest["metadata"].get("namespace"), manifest)
        created: dict[str, Any] = orjson.loads(self._api.send(sent))
        return created

    def _set_policy(self, text: str) -> None:
        """Writes the policy as an admin would, if the scenario has one."""
        if text:
            where = (request.CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP)
            self._api.send(request.merge_patch(*where, {"data": {POLICY_KEY: text}}))

    def _first_services(self) -> None:
        service_count = self._scenario.services[0]
        self._do(f"starting {service_count} services")
        self.scene.services_wanted = service_count
        self._recorder.step(service_count)
        self.create(workload.services(self._scenario))
        self._wait_running(Kind.SERVICE, service_count)

    def _jobs(self) -> None:
        scenario = self._scenario
        for number, job in enumerate(scenario.job_names, start=1):
            if number > 1:
                self._pause(scenario.job_gap_s)
            self._do(f"submitting job {number} of {scenario.jobs}")
            self.scene.jobs = (*self.scene.jobs, job)
            self._recorder.submit(job)
            for manifest in workload.job_objects(scenario, job, plain=self._plain):
                self.create(manifest)
        self._do(f"{scenario.services[0]} services, {scenario.jobs} jobs grow into the rest")
        self._pause(scenario.step_s)

    def _step(self, before: int, after: int) -> None:
        """Changes how many services are wanted, and stays on that plateau."""
        is_step_up = after > before
        self._do(f"services {before} -> {after}: trainers {'give way' if is_step_up else 'grow'}")
        self.scene.services_wanted = after
        self._recorder.step(after)
        begun_s = self._clock_s()
        self._scale(after)
        if is_step_up:
            self._wait_reclaim(begun_s, before, after)
        self._pause(begun_s + self._scenario.step_s - self._clock_s())

    def _scale(self, replicas: int) -> None:
        patch = {"spec": {"replicas": replicas}}
        self._api.send(
            request.merge_patch(
                request.DEPLOYMENTS, workload.SERVICES_NAMESPACE, workload.SERVICES, patch
            )
        )

    def _wait_reclaim(self, begun_s: float, before: int, after: int) -> None:
        """Shows how long the services waited; a run in which they never came goes on."""
        until_s = begun_s + self._scenario.step_s
        while self._clock_s() < until_s:
            self._tick()
            if self.scene.counts.at_work(Kind.SERVICE) >= after:
                seconds = self._clock_s() - begun_s
                self.scene.last_reclaim = f"{before} -> {after}: all running after {seconds:.1f} s"
                self._view.say(f"services {self.scene.last_reclaim}")
                return
            self._sleep(_TICK_S)

    def _wait_nodes(self, count: int) -> None:
        deadline_s = self._clock_s() + _NODES_S
        while (ready := count_ready(self._api)) < count:
            self.scene.doing = f"nodes ready {ready}/{count}"
            self._check(deadline_s, f"{ready} of {count} nodes are ready; see kwok's log")
            self._pause(_READY_PERIOD_S)

    def _wait_running(self, kind: Kind, count: int) -> None:
        doing = self.scene.doing
        deadline_s = self._clock_s() + _PODS_S
        while (running := self._recorder.counts().at_work(kind)) < count:
            self.scene.doing = f"{doing}: {running}/{count} running"
            self._check(deadline_s, f"{doing}: {running} of {count} run; see kube-scheduler's log")
            self._tick()
            self._sleep(_TICK_S)

    def _check(self, deadline_s: float, action: str) -> None:
        if self._clock_s() > deadline_s:
            raise ScriptError(f"timed out: {action}")

    def _pause(self, seconds: float) -> None:
        until_s = self._clock_s() + seconds
        while (left_s := until_s - self._clock_s()) > 0:
            self._tick()
            self._sleep(min(_TICK_S, left_s))

    def _do(self, doing: str) -> None:
        self.scene.doing = doing
        self._view.say(doing)
        self._tick()

    def _tick(self) -> None:
        now_s = self._clock_s()
        self.scene.counts = self._recorder.counts()
        if self._end_s is not None:
            self.scene.left_s = self._end_s - now_s
        self._view.tick(self.scene, now_s)
