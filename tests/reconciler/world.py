"""A cluster in memory with minimal kube-scheduler, kubelet and garbage collector."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import yaml

from kube import decode, record_log, request
from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.request import CONFIGMAPS, EVENTS, JOBS, NODES, PODS
from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Phase, Pod, Snapshot
from policy.names import (
    CHECK_RESOURCE,
    POLICY_CONFIGMAP,
    POLICY_KEY,
    SYSTEM_NAMESPACE,
    TRAINER_RESOURCE,
)
from policy.planning.plan import Plan
from policy.records import Record
from reconciler.components import Clocks
from reconciler.jobs.status import WAITING
from reconciler.loop import Reconciler
from reconciler.metrics import ReconcilerMetrics
from reconciler.records.events import EventRecorder
from reconciler.records.inbox import RecordInbox
from reconciler.records.writer import RecordWriter
from reconciler.settings import ReconcilerSettings
from runtime.metrics import Metrics
from tests.reconciler import objects
from tests.reconciler.server import Clock, Instant, look
from tests.reconciler.waiting import LIMIT_S, CallersThread, Writers, until
from tests.support import rbac
from tests.support.rbac import RestrictedApi

WHOLE = '{"reserve": {"maxLoad": {"cpu": 1}}}'
"""A policy without reserve, so that what fits can be counted by hand."""


def _decided(policy: str) -> str:
    """The policy; one without a word on the extender says that it is there, so no test pod asks."""
    document = yaml.safe_load(policy)
    return orjson.dumps({"scheduling": {"extender": "always"}} | document).decode()


class World:
    """A cluster without EDL."""

    def __init__(self, *cpus: int, policy: str = WHOLE) -> None:
        """Nodes n0, n1, … with the given numbers of CPU."""
        self.clock = Clock()
        self.extender: bool | None = True
        """Whether kube-scheduler has the extender's entries; None while no scheduler runs."""
        self.leave = Phase.FAILED
        """How pods under deletion end: many programs save and exit with 0."""
        self.apart: set[str] = set()
        """Jobs that may have one trainer on a node: no second one is scheduled there."""
        self.kubelets_ahead_s = 0.0
        """How much the clocks of kubelets are ahead of the API server's."""
        self.api = Instant(self.clock)
        self._collected = 0
        """The version of the newest write when the garbage collector looked last."""
        for i, cpu in enumerate(cpus):
            self.ask(request.create(NODES, None, objects.node(f"n{i}", cpu)))
        body = {"metadata": {"name": POLICY_CONFIGMAP}, "data": {POLICY_KEY: _decided(policy)}}
        self.ask(request.create(CONFIGMAPS, SYSTEM_NAMESPACE, body))

    def copy(self) -> "World":
        """A cluster with the same objects at the same time, which from then on is another one."""
        world = World()
        world.clock.now_s = self.clock.now_s
        world.api.fake.load(self.api.fake)
        return world

    def ask(self, api_request: request.Request) -> Any:
        """Sends a request as a user or a control plane component would."""
        return self.api.ask(api_request)

    def add_job(self, name: str, low: int = 1, high: int = 10, **fields: Any) -> Any:
        """An elastic Job."""
        return self.ask(request.create(JOBS, "ml", objects.job(name, low, high, **fields)))

    def add_services(self, count: int, cpu: float = 3, prefix: str = "web", **spec: Any) -> None:
        """Service pods without a node."""
        for i in range(count):
            pod = objects.pod(f"{prefix}-{i}", cpu, **spec)
            pod["metadata"]["ownerReferences"] = [
                {"kind": "ReplicaSet", "name": prefix, "uid": f"uid-{prefix}", "controller": True}
            ]
            self.ask(request.create(PODS, "shop", pod))

    def change_job(self, name: str, body: dict[str, Any], subresource: str = "") -> Any:
        """A merge patch by a user."""
        return self.ask(request.merge_patch(JOBS, "ml", name, body, subresource=subresource))

    def job(self, name: str) -> Job:
        """The Job as it stands."""
        job = decode.job(self.ask(request.get(JOBS, "ml", name)))
        assert job is not None
        return job

    def waiting(self, name: str = "net") -> tuple[str, str, str]:
        """(status, reason, message) of a Job's condition Waiting; empty where it has none."""
        for condition in self.job(name).status.conditions:
            if condition.type == WAITING:
                return condition.status, condition.reason, condition.message
        return "", "", ""

    def pods(self, owner: str = "", *, ended: bool = False) -> list[Pod]:
        """Trainers of a job, or with no job named, services; by name."""
        return [
            p
            for p in self.api.pods()
            if p.job == owner and p.server < 0 and (ended or not p.terminal)
        ]

    def servers(self, owner: str) -> list[Pod]:
        """Parameter servers of a job, in whatever state; by name."""
        return [pod for pod in self.api.pods() if pod.job == owner and pod.server >= 0]

    def running(self, owner: str = "") -> list[Pod]:
        """Pods that run and are not being deleted."""
        return [p for p in self.pods(owner) if p.node and not p.deleting]

    def events(self, reason: str) -> list[str]:
        """Messages of the events written for a reason."""
        return [e["message"] for e in self.api.all(EVENTS) if e["reason"] == reason]

    # The control plane

    def step(self, seconds: float = 1.0) -> None:
        """Advances time; deleting pods are removed, pods that fit are bound and run."""
        self.clock.advance(seconds)
        self.stop_pods()
        self.collect()
        self.schedule()

    def stop_pods(self) -> None:
        """The kubelet: pods under deletion end, then go."""
        for pod in self.api.pods():
            if pod.deleting:
                self.end(pod, self.leave)
                self.remove(pod)

    def collect(self) -> None:
        """The garbage collector: removes pods of deleted Jobs."""
        if self.api.fake.version == self._collected:
            return
        owners = {obj["metadata"]["uid"] for obj in self.api.all(JOBS)}
        for pod in self.api.pods():
            if pod.job and pod.owner_uid not in owners:
                self.remove(pod)
        self._collected = self.api.fake.version

    def schedule(self) -> None:
        """kube-scheduler without preemption: by priority, on the first node with room.

        Pods with scheduling gates are not looked at.
        """
        if self.extender is None:
            return
        pods = self.api.pods()
        if all(pod.node or pod.terminal for pod in pods):
            return
        nodes = tuple(decode.node(obj) for obj in self.api.all(NODES))
        index = ClusterState.of(Snapshot(nodes, tuple(pods)))
        waiting = (pod for pod in index.waiting.values() if not pod.gated)
        for pod in sorted(waiting, key=lambda p: (-p.priority, p.created_s, p.key)):
            insufficient = [CHECK_RESOURCE] if CHECK_RESOURCE in pod.requests else []
            insufficient += [TRAINER_RESOURCE] if pod.marked and not self.extender else []
            if insufficient or not pod.only_resources:
                texts = [f"{len(nodes)} Insufficient {name}" for name in insufficient]
                self._refuse(pod, f"0/{len(nodes)} nodes are available: {', '.join(texts)}.")
                continue
            names = sorted(index.open_nodes(pod.constraints))
            fits = (n for n in names if amounts.within(pod.requests, index.free(n)))
            if pod.job in self.apart:
                taken = {p.node for p in index.pods.values() if p.job == pod.job and p.node}
                fits = (n for n in fits if n not in taken)
            where = next(fits, "")
            if pod.job in self.apart and not where:
                self._refuse(
                    pod, f"0/{len(nodes)} nodes are available: {len(nodes)} anti-affinity."
                )
            if where:
                self.bind(pod, where)
                index.put_pod(replace(pod, node=where))

    def _refuse(self, pod: Pod, message: str) -> None:
        """What it asks for does not exist."""
        if not pod.refused:
            refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            refusal["message"] = message
            self._status(pod, {"conditions": [refusal]})

    def bind(self, pod: Pod, where: str) -> None:
        """Binds a pod; it runs and is ready at once."""
        spec = {"spec": {"nodeName": where}}
        self.ask(request.merge_patch(PODS, pod.namespace, pod.name, spec))
        stamp = self._kubelet_time()
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": stamp}]
        self._status(pod, {"phase": "Running", "startTime": stamp, "conditions": conditions})

    def end(self, pod: Pod, phase: Phase) -> None:
        """A pod's containers end."""
        now = self._kubelet_time()
        start = datetime.fromtimestamp(pod.started_s, UTC).isoformat()
        end = {"exitCode": 1, "startedAt": start, "finishedAt": now}
        state = {"name": "main", "state": {"terminated": end}}
        self._status(pod, {"phase": str(phase), "containerStatuses": [state]})

    def _kubelet_time(self) -> str:
        now_s = self.clock.seconds() + self.kubelets_ahead_s
        return datetime.fromtimestamp(now_s, UTC).isoformat()

    def reject(self, pod: Pod, where: str) -> None:
        """A kubelet refuses a pod that was bound to its node."""
        self.bind(pod, where)
        self._status(pod, {"phase": "Failed", "reason": "UnexpectedAdmissionError"})

    def remove(self, pod: Pod) -> None:
        """Removes a pod."""
        self.ask(request.delete(PODS, pod.namespace, pod.name, grace_s=0))

    def preempt(self, pod: Pod) -> None:
        """kube-scheduler preempts a pod."""
        target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        self._status(pod, {"conditions": [target]})
        self.ask(request.delete(PODS, pod.namespace, pod.name))

    def _status(self, pod: Pod, status: dict[str, Any]) -> None:
        body = {"status": status}
        self.ask(request.merge_patch(PODS, pod.namespace, pod.name, body, subresource="status"))


class Process:
    """One reconciler on a world, without its threads; with the rights that deploy/base grants it."""

    def __init__(
        self,
        world: World,
        leads: Callable[[], bool] = lambda: True,
        writers: int = 8,
        account: rbac.Account | None = None,
        ahead_s: float = 0.0,
        *,
        settings: ReconcilerSettings | None = None,
    ) -> None:
        """Its clock is `ahead_s` ahead of the API server's; with 0 writers it writes by itself."""
        self.world = world
        clock = world.clock
        self.metrics = Metrics("reconciler")
        self.writers = Writers(writers) if writers else CallersThread()
        self.account = account or rbac.account("edl-reconciler")
        api = RestrictedApi(world.api, self.account)
        self.cache = ClusterCache(
            api, config_map=(SYSTEM_NAMESPACE, POLICY_CONFIGMAP), clock_s=clock.seconds
        )
        policy = ActivePolicy.of(self.cache.config)
        self.recorder = EventRecorder(api, "test", clock.now)
        inbox = RecordInbox()
        self.writer = RecordWriter(
            *(api, inbox, leads),
            policy=lambda: policy.current.policy,
            epoch_s=clock.seconds,
        )
        self.loop = Reconciler(
            api,
            settings or ReconcilerSettings(),
            cache=self.cache,
            policy=policy,
            leads=leads,
            recorder=self.recorder,
            metrics=ReconcilerMetrics(self.metrics),
            clocks=Clocks(lambda: clock.seconds() + ahead_s, clock.seconds),
            pool=self.writers,
            inbox=inbox,
        )
        self.loop.components.probe.wait_s = LIMIT_S  # virtual time does not pass meanwhile

    def round(self) -> Plan | None:
        """Reads the cluster, then runs one tick."""
        look(self.cache)
        return self.tick()

    def tick(self) -> Plan | None:
        """Runs one tick on the cluster as read before; returns when all its writes have ended."""
        new_plan = self.loop.tick()
        self.writers.settle()
        return new_plan

    def run(self, seconds: int) -> None:
        """Runs one tick a second, and the control plane in between."""
        for _ in range(seconds):
            self.round()
            self.world.step()
        self.round()

    def records(self, namespace: str = "ml") -> list[Record]:
        """The records of a namespace, after the writer has written what was there."""
        self.writer.round()
        return record_log.read(self.world.api, namespace)

    def write_events(self) -> None:
        """Writes queued events; may be called once."""
        write_events(self.recorder)

    def stop(self) -> None:
        """Stops all threads; no request may have lacked a right."""
        self.loop.stop()
        assert not self.account.refused

    def value(self, line: str) -> str:
        """The value of a metric, by its name and labels."""
        lines = self.metrics.text().decode().splitlines()
        return next(metric.rpartition(" ")[2] for metric in lines if metric.startswith(line + " "))


def write_events(recorder: EventRecorder) -> None:
    """Writes queued events; may be called once for a recorder."""
    recorder.start()
    recorder.stop()
    thread = recorder._thread  # noqa: SLF001 - `stop` does not wait for ever
    until(lambda: not thread.is_alive())


def posted(world: World, resource: str) -> list[Any]:
    """Bodies of all objects created through the world's API, in order."""
    writes = world.api.writes
    return [
        orjson.loads(w.body) for w in writes if w.method == "POST" and w.path.endswith(resource)
    ]
