"""Records the lifetimes of pods, and keeps counts for the live view.

The watch thread calls `Recorder.change`; the demo's own thread reads `counts()` and marks
steps. Counting is incremental: an event costs the same with 100 pods and with 100 000.
"""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from e2e.measure.pods import Kind, PodView
from policy.cluster.snapshot import Phase


@dataclass(slots=True)
class PodLifetime:
    """One pod from creation to removal; times in seconds of the run's clock."""

    uid: str
    name: str
    kind: Kind
    job: str
    surplus: bool
    cpu_millis: int
    created_s: float
    node: str = ""
    bound_s: float | None = None
    running_s: float | None = None
    deleting_s: float | None = None
    ended_s: float | None = None
    """When its containers ended or it was deleted, which frees its capacity."""
    gone_s: float | None = None
    refused_s: float | None = None
    """Its node had no capacity for it."""
    disruption: str = ""
    nominations: list[tuple[float, str]] = field(default_factory=list)
    """(time, node) of preemptions by the scheduler for this pod."""
    limit_millis: int = 0
    """Its CPU limit, or its request if it has no limit."""

    @property
    def leaves_s(self) -> float | None:
        """When it stopped counting as wanted: deleted, ended or vanished."""
        times = [time for time in (self.deleting_s, self.ended_s) if time is not None]
        return min(times, default=None)

    @property
    def killed_s(self) -> float | None:
        """When it was deleted, if it is a trainer with a node."""
        placed = self.kind is Kind.TRAINER and self.bound_s is not None
        return self.deleting_s if placed else None


@dataclass(frozen=True, slots=True)
class ServiceStep:
    """A change of the number of wanted services at `at_s`."""

    at_s: float
    services: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A finished run: all that figures are made of."""

    lifetimes: tuple[PodLifetime, ...]
    steps: tuple[ServiceStep, ...]
    """One per plateau; the first begins when the services are created."""
    submitted_s: dict[str, float]
    """Job -> when its objects were sent."""
    started_s: float
    """The first object of the workload was sent."""
    end_s: float
    nodes: dict[str, int]
    """Node name -> CPU millis."""

    def plateau(self, index: int) -> tuple[float, float]:
        """(begin, end) of a plateau; nothing, at the end, where the run has none."""
        if index >= len(self.steps):
            return self.end_s, self.end_s
        later = [step.at_s for step in self.steps[index + 1 :]]
        return self.steps[index].at_s, min(later, default=self.end_s)


@dataclass(frozen=True, slots=True)
class Counts:
    """The cluster at one moment, for the live view and for waiting."""

    pods: Counter[str] = field(default_factory=Counter)
    """`<kind>.at_work`, `<kind>.waiting` -> pods, and the CPU in use as `cpu_millis`."""
    trainers: Counter[str] = field(default_factory=Counter)
    """Job -> trainers at work."""

    def at_work(self, kind: Kind) -> int:
        """Running pods of that kind that are not terminating."""
        return self.pods[f"{kind}.at_work"]

    def waiting(self, kind: Kind) -> int:
        """Pods of that kind that wait to run."""
        return self.pods[f"{kind}.waiting"]

    @property
    def cpu_millis(self) -> int:
        """Requests of Running pods, terminating ones included."""
        return self.pods["cpu_millis"]


class Recorder:
    """A recorder of pod lifetimes, fed by a watch; other threads may read it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lifetimes: dict[str, PodLifetime] = {}
        self._counts = Counts()
        self._steps: list[ServiceStep] = []
        self._submitted: dict[str, float] = {}
        self._started_s: float | None = None

    def change(self, old: PodView | None, new: PodView | None) -> None:
        """A pod appeared (`old` is None), changed, or vanished (`new` is None)."""
        now = self._clock()
        with self._lock:
            if old is not None:
                self._count(old, -1)
            if new is None:
                if old is not None:
                    self._vanish(old.uid, now)
                return
            self._count(new, 1)
            lifetime = self._lifetimes.get(new.uid)
            if lifetime is None:
                lifetime = self._lifetimes[new.uid] = _born(new, now)
            _follow(lifetime, new, now)

    def begin(self) -> None:
        """The workload is about to be created."""
        self._started_s = self._clock()

    def step(self, services: int) -> None:
        """From now on that many services are wanted."""
        with self._lock:
            self._steps.append(ServiceStep(self._clock(), services))

    def submit(self, job: str) -> None:
        """A job is about to be created."""
        with self._lock:
            self._submitted[job] = self._clock()

    def counts(self) -> Counts:
        """Returns a copy of the counts as they stand."""
        with self._lock:
            return Counts(Counter(self._counts.pods), Counter(self._counts.trainers))

    def timeline(self, nodes: dict[str, int]) -> Timeline:
        """Everything up to now, as a copy."""
        now = self._clock()
        with self._lock:
            return Timeline(
                lifetimes=tuple(
                    replace(lifetime, nominations=list(lifetime.nominations))
                    for lifetime in self._lifetimes.values()
                ),
                steps=tuple(self._steps),
                submitted_s=dict(self._submitted),
                started_s=now if self._started_s is None else self._started_s,
                end_s=now,
                nodes=dict(nodes),
            )

    def _count(self, pod: PodView, sign: int) -> None:
        pods = self._counts.pods
        if pod.phase is Phase.RUNNING:
            pods["cpu_millis"] += sign * pod.cpu_millis
        if pod.at_work:
            pods[f"{pod.kind}.at_work"] += sign
            if pod.kind is Kind.TRAINER:
                self._counts.trainers[pod.job] += sign
        elif pod.waiting:
            pods[f"{pod.kind}.waiting"] += sign

    def _vanish(self, uid: str, now: float) -> None:
        lifetime = self._lifetimes[uid]
        lifetime.gone_s = now
        if lifetime.ended_s is None:
            lifetime.ended_s = now


def _born(pod: PodView, now: float) -> PodLifetime:
    return PodLifetime(
        uid=pod.uid,
        name=pod.name,
        kind=pod.kind,
        job=pod.job,
        surplus=pod.surplus,
        cpu_millis=pod.cpu_millis,
        created_s=now,
        limit_millis=pod.limit_millis,
    )


def _follow(lifetime: PodLifetime, pod: PodView, now: float) -> None:
    """Notes the first time of everything that happens to a pod once."""
    lifetime.surplus = pod.surplus  # a trainer may rise to guaranteed
    lifetime.disruption = lifetime.disruption or pod.disruption
    if pod.node and lifetime.bound_s is None:
        lifetime.node, lifetime.bound_s = pod.node, now
    if pod.phase is Phase.RUNNING and lifetime.running_s is None:
        lifetime.running_s = now
    if pod.deleting and lifetime.deleting_s is None:
        lifetime.deleting_s = now
    if pod.ended and lifetime.ended_s is None:
        lifetime.ended_s = now
    if pod.refused and lifetime.refused_s is None:
        lifetime.refused_s = now
    if pod.nominated and (not lifetime.nominations or lifetime.nominations[-1][1] != pod.nominated):
        lifetime.nominations.append((now, pod.nominated))
