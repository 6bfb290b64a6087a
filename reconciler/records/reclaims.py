"""Records bursts, in which services take capacity from training. Pure.

A record says which services asked for capacity, which jobs gave it, how long that took, and how much training
was lost. A burst starts with the first service for which trainers are released or preempted, and ends when no
such service is waiting.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from policy.cluster.cluster_state import job_key
from policy.cluster.snapshot import Pod
from policy.reasons import Observation, Reason
from policy.records import CLUSTER, ELSEWHERE, Record
from reconciler.records.losses import EVICTED, Loss
from reconciler.records.service_starts import RECLAIMS, ServiceStart, ServiceWait

_PROGRESS_EVERY_S = 30.0
"""Interval between two records of an ongoing burst."""
_SETTLE_S = 3.0
"""How long to wait after the last start, because reports of preempted trainers arrive later."""
_MAX_S = 600.0
"""A longer burst is recorded in several parts."""
_MAX_LISTED = 20
"""Maximum number of groups of services, and of jobs, that a record lists; all others are added up."""
_NOMINATED_S = 10.0
"""How long a node counts as nominated. Its victims may be reported before or after the nomination."""
STAGES = ("decide", "free", "start")


@dataclass(slots=True)
class _ServiceGroup:
    """Services with the same owner."""

    name: str
    """namespace/name of the group's first pod, with `*` for the part that differs between its pods."""
    count: int = 0
    seconds: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: {s: [] for s in STAGES})


@dataclass(slots=True)
class _Donor:
    """Trainers of one job."""

    count: int = 0
    lost_s: float = 0.0


@dataclass(slots=True)
class _Burst:
    """A burst of services that take capacity from training."""

    since_s: float
    id: str
    services: dict[str, _ServiceGroup] = field(default_factory=dict)
    donors: dict[str, _Donor] = field(default_factory=dict)
    uids: set[str] = field(default_factory=set)
    quiet_s: float = 0.0
    """Time since which no service of the burst has been waiting; 0 while a service is waiting."""
    recorded_s: float = 0.0
    """Time of the last record."""

    def group(self, pod: Pod) -> _ServiceGroup:
        """Returns the group of a pod's owner, whose pods have the same name up to the last dash."""
        stem = pod.key.rpartition("-")[0]
        name = f"{stem}-*" if stem and pod.owner_uid else pod.key
        owner = f"{pod.namespace}/{pod.owner_uid or pod.uid}"  # a pod may name another namespace's owner
        return self.services.setdefault(owner, _ServiceGroup(name))

    def count_trainer(self, job: str, lost_s: float) -> None:
        """Counts a trainer of a job that leaves because of this burst."""
        donor = self.donors.setdefault(job, _Donor())
        donor.count += 1
        donor.lost_s += lost_s


class Reclaims:
    """The current burst, and the trainers that leave because of it. Used on one thread."""

    def __init__(self) -> None:
        self._burst: _Burst | None = None
        self._nominated: dict[str, tuple[str, float]] = {}
        """Node -> (service for which kube-scheduler preempts there, when that was last seen)."""
        self._nominated_training: dict[str, tuple[str, float]] = {}
        """Node -> (job for whose guaranteed pod kube-scheduler preempts there, when that was last seen)."""
        self._released: list[tuple[str, float, float]] = []
        """(job, seconds lost, time) of trainers released for services and not yet assigned to a burst."""
        self._unclear: list[tuple[Loss, float]] = []
        """Evicted trainers that may turn out to have been preempted."""

    def note_released(self, job: str, lost_s: float, now_s: float) -> None:
        """Records that a trainer was released for a service, and how much training that loses."""
        self._released.append((job, lost_s, now_s))

    def observe(
        self,
        reclaiming: Mapping[str, ServiceWait],
        starts: Iterable[ServiceStart],
        losses: Iterable[Loss],
        now_s: float,
        nominated: Iterable[Pod] = (),
    ) -> list[tuple[str, Record]]:
        """Processes what a tick has observed.

        Args:
            reclaiming: uid -> service that waits for trainers to leave.
            starts: Services that have started to run.
            losses: Trainers that have started to leave.
            now_s: Seconds since the epoch.
            nominated: Training pods for which kube-scheduler preempts.

        Returns:
            (namespace, record) for each record that is due.
        """
        for pod in nominated:
            self._nominated_training[pod.nominated] = (job_key(pod), now_s)
        for uid, wait in reclaiming.items():
            self._note_service(uid, wait, now_s)
        for start in starts:
            if start.cause in RECLAIMS:
                group = self._note_service(start.wait.pod.uid, start.wait, now_s)
                group.seconds.append(start.seconds)
                for stage, seconds in start.stages.items():
                    group.stages[stage].append(seconds)
        records = self._count_losses(losses, now_s)
        return records + self._report(bool(reclaiming), now_s)

    def _note_service(self, uid: str, wait: ServiceWait, now_s: float) -> _ServiceGroup:
        pod = wait.pod
        if pod.nominated:
            self._nominated[pod.nominated] = (pod.key, now_s)
        burst = self._burst
        if burst is None:
            created_s = min(pod.created_s or now_s, now_s)
            burst = self._burst = _Burst(created_s, f"{int(now_s * 1000):x}", recorded_s=now_s)
        group = burst.group(pod)
        if uid not in burst.uids:
            burst.uids.add(uid)
            group.count += 1
        return group

    def _count_losses(self, losses: Iterable[Loss], now_s: float) -> list[tuple[str, Record]]:
        """Counts trainers that leave for services; returns records of those that EDL did not release."""
        self._forget_nominated(now_s)
        # Trainers that EDL released count toward the current burst. If there is no burst yet, the service that
        # starts one is about to be observed, so these trainers are kept for a moment.
        released, self._released = self._released, []
        for job, lost_s, since_s in released:
            if self._burst is not None:
                self._burst.count_trainer(job, lost_s)
            elif now_s - since_s < _SETTLE_S:
                self._released.append((job, lost_s, since_s))
        # Other trainers: if a pod is nominated for the node of an evicted trainer, the trainer was preempted.
        # The nomination may be observed after the eviction, so an eviction without a nomination waits for
        # `_SETTLE_S` before it is recorded.
        records = []
        unclear, self._unclear = self._unclear, []
        for loss, since_s in [*unclear, *((loss, now_s) for loss in losses)]:
            if loss.cause == EVICTED and loss.pod.node in self._nominated:
                self._released.append((_job_of(loss), loss.seconds, now_s))
                service = self._nominated[loss.pod.node][0]
                records += _preempted(loss, "service", service, since_s)
            elif loss.cause == EVICTED and loss.pod.node in self._nominated_training:
                job = self._nominated_training[loss.pod.node][0]
                records += _preempted(loss, "to", job, since_s)
            elif loss.cause == EVICTED and now_s - since_s < _SETTLE_S:
                self._unclear.append((loss, since_s))
            elif loss.cause == EVICTED:
                records += _ended(loss, Observation.EVICTED, since_s)
            elif loss.cause not in _REASONS:
                records += _ended(loss, Observation.TRAINER_FAILED, since_s)
        return records

    def _forget_nominated(self, now_s: float) -> None:
        for nominated in (self._nominated, self._nominated_training):
            old = [n for n, (_, seen_s) in nominated.items() if now_s - seen_s > _NOMINATED_S]
            for node in old:
                del nominated[node]

    def _report(self, anyone_waits: bool, now_s: float) -> list[tuple[str, Record]]:
        burst = self._burst
        if burst is None:
            return []
        if anyone_waits:
            burst.quiet_s = 0.0
        else:
            burst.quiet_s = burst.quiet_s or now_s
        over = bool(burst.quiet_s) and now_s - burst.quiet_s >= _SETTLE_S
        if over or now_s - burst.since_s > _MAX_S:
            self._burst = None
            return _records(burst, Observation.RECLAIMED, now_s)
        if now_s - burst.recorded_s >= _PROGRESS_EVERY_S:
            burst.recorded_s = now_s
            return _records(burst, Observation.RECLAIMING, now_s)
        return []


_REASONS = frozenset(str(reason) for reason in Reason)


def _job_of(loss: Loss) -> str:
    return f"{loss.pod.namespace}/{loss.pod.job or loss.pod.name}"


def _preempted(loss: Loss, figure: str, winner: str, at_s: float) -> list[tuple[str, Record]]:
    """Returns the records of a trainer that kube-scheduler preempted, for its namespace and the cluster.

    Args:
        loss: The trainer.
        figure: Name of the figure that holds the winner: `service` for a pod, `to` for a job.
        winner: The pod or job for which the trainer was preempted.
        at_s: Time of the preemption.
    """
    own = winner if winner.partition("/")[0] == loss.pod.namespace else ELSEWHERE
    return [
        (namespace, _of_trainer(loss, Observation.PREEMPTED, at_s, **{figure: name}))
        for namespace, name in ((loss.pod.namespace, own), (CLUSTER, winner))
        if namespace != CLUSTER or own != winner
    ]


def _ended(loss: Loss, code: Observation, at_s: float) -> list[tuple[str, Record]]:
    figures = {}
    if code is Observation.TRAINER_FAILED and loss.pod.exits:
        figures["exit"] = ", ".join(str(exit_code) for _, exit_code in loss.pod.exits)
    return [(loss.pod.namespace, _of_trainer(loss, code, at_s, **figures))]


def _of_trainer(loss: Loss, code: Observation, at_s: float, **figures: Any) -> Record:
    values = {"node": loss.pod.node, "lostSeconds": round(loss.seconds, 1), **figures}
    winner = figures.get("service") or f"guaranteed pods of {figures.get('to')}"
    texts = {
        Observation.PREEMPTED: f"preempted by kube-scheduler for {winner}",
        Observation.EVICTED: "ended by a drain, by a user, or because its node was lost",
        Observation.TRAINER_FAILED: f"its program failed with exit code {figures.get('exit', '?')}",
    }
    about = f"pod {loss.pod.namespace}/{loss.pod.name}"
    return Record(at_s, about, code, texts[code], values, _job_of(loss), at_s)


_Group = dict[str, float]
"""Figures that a record gives for a group of services or trainers."""


def _records(burst: _Burst, code: Observation, now_s: float) -> list[tuple[str, Record]]:
    """Returns the record of a burst for the cluster, and one for each namespace with the part it may see."""
    services = _Groups((group.name, _of_services(group)) for group in burst.services.values())
    trainers = _Groups(
        (job, {"count": donor.count, "lostSeconds": donor.lost_s})
        for job, donor in burst.donors.items()
    )
    shared = {
        "stages": _stages(burst),
        "lostSeconds": round(sum(donor.lost_s for donor in burst.donors.values()), 1),
    }
    about, text = f"reclaim {burst.id}", _text(burst)
    names = services.namespaces | trainers.namespaces
    return [
        (
            namespace,
            Record(
                now_s,
                about,
                code,
                text,
                figures={
                    "services": services.seen(namespace),
                    "trainers": trainers.seen(namespace),
                    **shared,
                },
                since_s=burst.since_s,
            ),
        )
        for namespace in (CLUSTER, *sorted(names - {CLUSTER}))
    ]


def _of_services(group: _ServiceGroup) -> _Group:
    worst = max(group.seconds, default=0.0)
    return {
        "count": group.count,
        "running": len(group.seconds),
        "worstSeconds": worst,
    }


class _Groups:
    """Groups by name, and the part that each namespace may see. Sums are prepared once for all namespaces."""

    def __init__(self, groups: Iterable[tuple[str, _Group]]) -> None:
        self._by_name: dict[str, _Group] = {}
        for name, group in groups:
            _merge(self._by_name.setdefault(name, {}), group)
        self._own: dict[str, dict[str, _Group]] = {}
        for name, group in self._by_name.items():
            self._own.setdefault(name.partition("/")[0], {})[name] = group
        self._others = self._sum_others()

    @property
    def namespaces(self) -> set[str]:
        """The namespaces that have a group."""
        return set(self._own)

    def _sum_others(self) -> dict[str, _Group]:
        """Returns namespace -> the sum of all other namespaces' groups.

        Two passes suffice: one adds the namespaces before each namespace, the other those after it.
        """
        sums: dict[str, _Group] = {namespace: {} for namespace in self._own}
        for order in (list(self._own), list(self._own)[::-1]):
            total: _Group = {}
            for namespace in order:
                _merge(sums[namespace], total)
                for group in self._own[namespace].values():
                    _merge(total, group)
        return sums

    def seen(self, namespace: str) -> dict[str, _Group]:
        """Returns name -> group as visible to a namespace, largest first; others are added up to one group."""
        if namespace == CLUSTER:
            return _listed(self._by_name)
        seen = _listed(self._own.get(namespace, {}))
        others = self._others.get(namespace)
        if others is None:
            others = {}
            for group in self._by_name.values():
                _merge(others, group)
        return seen | ({ELSEWHERE: _rounded(others)} if others else {})


def _listed(groups: Mapping[str, _Group]) -> dict[str, _Group]:
    """Returns the largest groups, and the sum of the rest."""
    listed: dict[str, _Group] = {}
    for name, group in sorted(groups.items(), key=lambda item: -item[1]["count"]):
        _merge(listed.setdefault(name if len(listed) < _MAX_LISTED else "others", {}), group)
    return {name: _rounded(group) for name, group in listed.items()}


def _merge(total: _Group, group: _Group) -> None:
    for name, value in group.items():
        present = total.get(name, 0)
        total[name] = max(present, value) if name == "worstSeconds" else present + value


def _rounded(group: _Group) -> _Group:
    digits = {"worstSeconds": 2, "lostSeconds": 1}
    return {name: round(v, digits[name]) if name in digits else v for name, v in group.items()}


def _stages(burst: _Burst) -> dict[str, dict[str, float]]:
    """Returns median and maximum, in seconds, of each stage and of the total."""
    stages: dict[str, dict[str, float]] = {}
    for stage in STAGES:
        stages[stage] = _spread(
            [s for group in burst.services.values() for s in group.stages[stage]]
        )
    stages["total"] = _spread([s for group in burst.services.values() for s in group.seconds])
    return stages


def _spread(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return {"median": round(median(seconds), 2), "max": round(max(seconds), 2)}


def _text(burst: _Burst) -> str:
    service_count = sum(group.count for group in burst.services.values())
    running = sum(len(group.seconds) for group in burst.services.values())
    trainer_count = sum(group.count for group in burst.donors.values())
    worst = max((s for group in burst.services.values() for s in group.seconds), default=0.0)
    slowest = f", slowest {worst:.1f} s" if running else ""
    return (
        f"{running} of {_counted(service_count, 'service')} running{slowest}; "
        f"{_counted(trainer_count, 'trainer')} of {_counted(len(burst.donors), 'job')} evicted"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
