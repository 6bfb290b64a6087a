"""Some hours of a small cluster in virtual time, for pictures of the page: EDL decides, observes and records itself.

Services come and go in waves, with bursts between; jobs of three namespaces share the rest. Planner, scheduler and
kubelets are those of `simulator`, the records are written by the reconciler's own parts, and the page reads them as
from an API server.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from math import pi, sin

import orjson

from bench import objects
from bench.page_cluster import LiveCluster
from kube.object_change import ObjectChange
from kube.request import CONFIGMAPS, NODES, PODS
from lab.fake_api.storage import Key
from policy.cluster.snapshot import Job, Node, Pod, TrainerAccounting
from policy.cluster.trainer_accounting import serialize
from policy.document.model import Fairness, Objectives, Policy, ReclaimObjective, Reserve
from policy.names import ANNOTATION_BOOKS, POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE, Role
from policy.planning.plan import Plan
from policy.planning.plan_input import PlanInput
from reconciler.metrics import ReconcilerMetrics
from reconciler.quarantine import Quarantine
from reconciler.records.decision_recorder import DecisionRecorder
from reconciler.records.observer import Observer
from runtime.metrics import Metrics
from simulator.clock import Clock
from simulator.cluster import DisruptionReason, PodChange, SimulatedCluster
from simulator.kubelet import SimulatedKubelets
from simulator.reconcile import SimulatedReconciler
from simulator.scheduler import SimulatedScheduler
from simulator.timing import Timing

START_S = 1_767_225_600.0 + 10 * 3600
"""2026-01-01, 10:00 UTC: pictures are the same each time."""
LENGTH_S = 2.5 * 3600
NODES_COUNT = 24
_GIB = 2**30
_POLICY = Policy(
    reserve=Reserve(max_load={"cpu": 0.9375}),
    fairness=Fairness(queue_weights={"night": 1, "gold": 3}),
    objectives=Objectives(reclaim=ReclaimObjective(share=0.95, seconds=3.0)),
)
_TIMING = Timing(start_s=1.1, stop_s=1.06)
_SERVICES = {
    # name -> (cores each, replicas on average, height of the wave, its period in minutes)
    "shop/web": (2, 36, 12, 70),
    "search/rank": (3, 16, 5, 110),
    "feed/api": (1, 24, 6, 45),
}
_BURST_EVERY_S = 780.0
_BURST_S = 240.0
_BURST = (18, 7, 30, 11, 14)
_JOBS = (
    # namespace, name, least, most, cores each, queue, minutes after the start
    ("ml", "digits", 2, 24, 2, "gold", 0),
    ("ml", "translate", 4, 12, 4, "gold", 1),
    ("ml", "embed", 1, 10, 2, "", 4),
    ("research", "vision", 2, 20, 3, "", 2),
    ("research", "speech", 6, 6, 3, "", 12),
    ("research", "protein", 12, 16, 10, "night", 90),
    ("ads", "ranking", 2, 16, 2, "night", 6),
    ("ads", "click-model", 1, 8, 4, "night", 40),
)


class Day(LiveCluster):
    """The API server of that cluster; `play` fills it."""

    def __init__(self) -> None:
        """Nodes and jobs, before anything runs."""
        self.clock = Clock(START_S)
        super().__init__(0, lambda: self.clock.now_s)
        self._simulated = SimulatedCluster(self.clock, self._cluster_nodes)
        self._changes: dict[str, ObjectChange[Pod]] = {}
        self._simulated.watch_pods(self._changed)
        SimulatedKubelets(self._simulated, _TIMING)
        SimulatedScheduler(self._simulated, _POLICY, _TIMING)
        SimulatedReconciler(self._simulated, _POLICY, _TIMING, self._planned)
        self._metrics = ReconcilerMetrics(Metrics("reconciler"))
        self._metrics.set_state(leads=True, age_s=0.0)
        self._observer = Observer(self._inbox, self._metrics)
        state = self._simulated.state
        self._recorder = DecisionRecorder(Quarantine(state), self._inbox)
        self._replicas: dict[str, list[str]] = {name: [] for name in _SERVICES}
        """Service -> uids of its pods."""
        self._pods_created = 0
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Job key -> its trainers: created, and ended by each reason."""

    def play(self, look: Callable[[], None], every_s: float = 15.0) -> None:
        """Lets the time pass; calls `look` every so often.

        Args:
            look: Has the page take in what there is.
            every_s: Virtual seconds.
        """
        for namespace, name, least, most, cores, queue, minutes in _JOBS:
            requests = {"cpu": cores * 1000, "memory": 2 * cores * _GIB, "pods": 1}
            job = Job(namespace, name, f"uid-{name}", least, most, requests, queue=queue)
            self.clock.at(START_S + 60 * minutes, partial(self._submit, job))
        for second in range(0, int(LENGTH_S), 60):
            self.clock.at(START_S + second, self._scale)
        while self.clock.now_s < START_S + LENGTH_S:
            self.clock.run(self.clock.now_s + every_s)
            self._observe()
            self.write()
            look()

    def add_burst(self, services: int) -> None:
        """None: bursts are observed here."""

    def _add_objective(self) -> None:
        """None: it is measured here."""

    @property
    def _cluster_nodes(self) -> list[Node]:
        sizes = {"cpu": 16_000, "memory": 64 * _GIB, "pods": 110}
        return [
            Node(f"node-{zone}{number}", sizes, {"topology.kubernetes.io/zone": f"zone-{zone}"})
            for zone in "abc"
            for number in range(1, NODES_COUNT // 3 + 1)
        ]

    def _fill(self, nodes: int) -> None:
        policy = orjson.dumps(_POLICY.model_dump(mode="json", by_alias=True)).decode()
        body = {
            "metadata": {"name": POLICY_CONFIGMAP, "uid": "policy"},
            "data": {POLICY_KEY: policy},
        }
        self._keep(CONFIGMAPS, SYSTEM_NAMESPACE, body)
        for node in self._cluster_nodes[nodes:]:
            self._keep(NODES, "", objects.node(node))

    def _annotations(self, key: str) -> dict[str, str]:
        counts = self._counts[key]
        next_id = counts["created"]
        live = len(self.trainers.get(key, ()))
        accounting = TrainerAccounting(
            next_id=next_id,
            open=frozenset(range(next_id - live, next_id)),
            disrupted=counts[DisruptionReason.PREEMPTED],
            released=counts[DisruptionReason.EVICTED],
        )
        return super()._annotations(key) | {ANNOTATION_BOOKS: serialize(accounting)}

    def _submit(self, job: Job) -> None:
        self._simulated.submit(job)
        self.jobs[job.key] = self._simulated.state.jobs[job.key]
        self._put_job(job.key)

    def _scale(self) -> None:
        """Scales each service to the value of its wave; in a burst, the first one has more replicas."""
        passed_s = self.clock.now_s - START_S
        minute = passed_s / 60
        number, since_s = divmod(passed_s, _BURST_EVERY_S)
        in_burst = number > 0 and since_s < _BURST_S
        extra = _BURST[int(number) % len(_BURST)] if in_burst else 0
        for name, (cores, mean, height, period) in _SERVICES.items():
            wanted = round(mean + height * sin(2 * pi * minute / period))
            if name == "shop/web":
                wanted += extra
            uids = self._replicas[name]
            while len(uids) > wanted:
                self._simulated.remove(uids.pop())
            while len(uids) < wanted:
                uids.append(self._new_service(name, cores))

    def _new_service(self, name: str, cores: int) -> str:
        self._pods_created += 1
        namespace, _, workload = name.partition("/")
        uid = f"uid-{workload}-{self._pods_created}"
        requests = {"cpu": cores * 1000, "memory": 2 * cores * _GIB, "pods": 1}
        pod_name = f"{workload}-7d9f-{self._pods_created}"
        pod = Pod(namespace, pod_name, uid, requests, priority=100, owner_uid=f"uid-{workload}")
        self._simulated.create(pod)
        return uid

    def _changed(self, change: PodChange) -> None:
        uid = change.pod.uid
        known = self._changes.get(uid)
        last = known.last if known else change.old
        self._changes[uid] = ObjectChange(last, change.new, change.at_s)
        if change.pod.role is Role.TRAINER and (change.old is None or change.deleted):
            event = change.disruption if change.deleted else "created"
            self._counts[f"{change.pod.namespace}/{change.pod.job}"][str(event)] += 1

    def _planned(self, _: PlanInput, plan: Plan) -> None:
        """As the reconciler's loop does with a plan."""
        state, now_s = self._simulated.state, self.clock.now_s
        self._observe()
        self._metrics.set_plan(plan, state, now_s)
        self._recorder.record(plan, state, _POLICY.node_pools, now_s)
        for release in plan.releases:
            self._recorder.record_release(release, now_s)
        self._observer.note_released(plan.releases, state, now_s)

    def _observe(self) -> None:
        """Writes what has changed into the API server, and observes it."""
        changes, self._changes = self._changes, {}
        touched = set()
        for change in changes.values():
            pod = change.new or change.last
            if pod is None:
                continue
            if change.new is None:
                self._storage.remove(Key(PODS, pod.namespace, pod.name))
            else:
                self._keep(PODS, pod.namespace, objects.pod(pod))
            if pod.role is Role.TRAINER:
                touched.add(f"{pod.namespace}/{pod.job}")
        for key in touched & self.jobs.keys():
            self.trainers[key] = list(self._simulated.state.trainers(self.jobs[key]))
            self._put_job(key)
        self._observer.observe(changes, {}, _POLICY.objectives, self.clock.now_s, leads=True)
