"""A cluster in memory with the smallest kube-scheduler, kubelet and garbage collector that will do."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from kube import decode, request
from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.request import CONFIGMAPS, EVENTS, JOBS, NODES, PODS
from policy import amounts
from policy.index import Index
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE
from policy.planning import Plan
from policy.snapshot import Job, Phase, Pod, Snapshot
from reconciler.events import Recorder
from reconciler.loop import Clocks, Reconciler
from reconciler.meters import Meters
from reconciler.settings import ReconcilerSettings
from runtime.metrics import Metrics
from runtime.records import Records
from tests.reconciler import objects
from tests.reconciler.server import Clock, Instant, look
from tests.reconciler.waiting import Writers, until

WHOLE = '{"reserve": {"maxLoad": {"cpu": 1}}}'
"""A policy that keeps nothing free, so that what fits can be counted by hand."""


class World:
    """Everything of a cluster but EDL."""

    def __init__(self, *cpus: int, policy: str = WHOLE) -> None:
        """Nodes n0, n1, … of so many CPU."""
        self.clock = Clock()
        self.api = Instant(self.clock)
        for i, cpu in enumerate(cpus):
            self.ask(request.create(NODES, None, objects.node(f"n{i}", cpu)))
        body = {"metadata": {"name": POLICY_CONFIGMAP}, "data": {POLICY_KEY: policy}}
        self.ask(request.create(CONFIGMAPS, SYSTEM_NAMESPACE, body))

    def ask(self, asked: request.Request) -> Any:
        """Does what a user or a control plane component asks."""
        return self.api.ask(asked)

    def add_job(self, name: str, low: int = 1, high: int = 10, **fields: Any) -> Any:
        """An elastic Job."""
        return self.ask(request.create(JOBS, "ml", objects.job(name, low, high, **fields)))

    def add_services(self, count: int, cpu: float = 3, prefix: str = "web") -> None:
        """Service pods without a node."""
        for i in range(count):
            self.ask(request.create(PODS, "shop", objects.pod(f"{prefix}-{i}", cpu)))

    def change_job(self, name: str, body: dict[str, Any], subresource: str = "") -> Any:
        """A merge patch by a user."""
        return self.ask(request.merge_patch(JOBS, "ml", name, body, subresource=subresource))

    def job(self, name: str) -> Job:
        """The Job as it stands."""
        found = decode.job(self.ask(request.get(JOBS, "ml", name)))
        assert found is not None
        return found

    def pods(self, owner: str = "", *, ended: bool = False) -> list[Pod]:
        """Trainers of a job, or with no job named, services; by name."""
        found = [decode.pod(obj) for obj in self.api.all(PODS)]
        return [p for p in found if p.job == owner and p.server < 0 and (ended or not p.terminal)]

    def servers(self, owner: str) -> list[Pod]:
        """Parameter servers of a job, in whatever state; by name."""
        found = [decode.pod(obj) for obj in self.api.all(PODS)]
        return [pod for pod in found if pod.job == owner and pod.server >= 0]

    def running(self, owner: str = "") -> list[Pod]:
        """Those that run and stay."""
        return [p for p in self.pods(owner) if p.node and not p.deleting]

    def events(self, reason: str) -> list[str]:
        """Messages of the events written for a reason."""
        return [e["message"] for e in self.api.all(EVENTS) if e["reason"] == reason]

    # The control plane

    def step(self, seconds: float = 1.0) -> None:
        """Time passes; what was leaving is gone, what fits is bound and runs."""
        self.clock.advance(seconds)
        self.stop_pods()
        self.collect()
        self.schedule()

    def stop_pods(self) -> None:
        """The kubelet: pods under deletion end, then go."""
        for pod in [decode.pod(obj) for obj in self.api.all(PODS)]:
            if pod.deleting:
                self.end(pod, Phase.FAILED)
                self.remove(pod)

    def collect(self) -> None:
        """The garbage collector: pods of Jobs that are gone go too."""
        owners = {obj["metadata"]["uid"] for obj in self.api.all(JOBS)}
        for pod in [decode.pod(obj) for obj in self.api.all(PODS)]:
            if pod.owner_uid and pod.owner_uid not in owners:
                self.remove(pod)

    def schedule(self) -> None:
        """kube-scheduler without preemption: by priority, on the first node with room."""
        nodes = tuple(decode.node(obj) for obj in self.api.all(NODES))
        pods = tuple(decode.pod(obj) for obj in self.api.all(PODS))
        index = Index.of(Snapshot(nodes, pods))
        for pod in sorted(index.waiting.values(), key=lambda p: (-p.priority, p.created_s, p.key)):
            fits = (n for n in sorted(index.nodes) if amounts.within(pod.requests, index.free(n)))
            where = next(fits, "")
            if where:
                self.bind(pod, where)
                index.put_pod(replace(pod, node=where))

    def bind(self, pod: Pod, where: str) -> None:
        """Binds a pod; it runs and is ready at once."""
        spec = {"spec": {"nodeName": where}}
        self.ask(request.merge_patch(PODS, pod.namespace, pod.name, spec))
        stamp = self.clock.now().isoformat()
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": stamp}]
        self._status(pod, {"phase": "Running", "startTime": stamp, "conditions": conditions})

    def end(self, pod: Pod, phase: Phase) -> None:
        """A pod's containers end."""
        now = self.clock.now().isoformat()
        state = {"name": "main", "state": {"terminated": {"exitCode": 1, "finishedAt": now}}}
        self._status(pod, {"phase": str(phase), "containerStatuses": [state]})

    def remove(self, pod: Pod) -> None:
        """A pod is gone."""
        self.ask(request.delete(PODS, pod.namespace, pod.name, grace_s=0))

    def preempt(self, pod: Pod) -> None:
        """kube-scheduler takes a victim."""
        target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        self._status(pod, {"conditions": [target]})
        self.ask(request.delete(PODS, pod.namespace, pod.name))

    def _status(self, pod: Pod, status: dict[str, Any]) -> None:
        body = {"status": status}
        self.ask(request.merge_patch(PODS, pod.namespace, pod.name, body, subresource="status"))


class Process:
    """One reconciler on a world, without its threads."""

    def __init__(self, world: World, leads: Callable[[], bool] = lambda: True) -> None:
        self.world = world
        clock = world.clock
        self.metrics = Metrics("reconciler")
        self.writers = Writers()
        self.cache = ClusterCache(
            world.api, config_map=(SYSTEM_NAMESPACE, POLICY_CONFIGMAP), clock_s=clock.seconds
        )
        policy = ActivePolicy()
        assert self.cache.config is not None
        policy.follow(self.cache.config)
        self.recorder = Recorder(world.api, "test", clock.now)
        self.records = Records()
        self.loop = Reconciler(
            world.api,
            ReconcilerSettings(),
            cache=self.cache,
            policy=policy,
            leads=leads,
            recorder=self.recorder,
            records=self.records,
            meters=Meters(self.metrics),
            clocks=Clocks(clock.seconds, clock.seconds),
            pool=self.writers,
        )

    def round(self) -> Plan | None:
        """Looks and makes one round."""
        look(self.cache)
        return self.tick()

    def tick(self) -> Plan | None:
        """Makes one round on what was seen before; all it began to write is written at the end."""
        made = self.loop.tick()
        self.writers.settle()
        return made

    def run(self, seconds: int) -> None:
        """One round a second, the control plane in between."""
        for _ in range(seconds):
            self.round()
            self.world.step()
        self.round()

    def tell(self) -> None:
        """Writes the events that wait; once only."""
        self.recorder.start()
        self.recorder.stop()
        thread = self.recorder._thread  # noqa: SLF001 - `stop` does not wait for ever
        until(lambda: not thread.is_alive())

    def stop(self) -> None:
        """Leaves no thread behind."""
        self.loop.stop()

    def value(self, line: str) -> str:
        """What the scrape says under a name (labels included)."""
        lines = self.metrics.text().decode().splitlines()
        return next(found.rpartition(" ")[2] for found in lines if found.startswith(line + " "))


def posted(world: World, resource: str) -> list[Any]:
    """Bodies of everything that was created through the world's door, in order."""
    writes = world.api.writes
    return [
        orjson.loads(w.body) for w in writes if w.method == "POST" and w.path.endswith(resource)
    ]
