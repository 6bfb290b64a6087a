"""How long services take from their creation until they run, and what they waited for. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kube.object_change import ObjectChange
from policy.cluster_state import ClusterState
from policy.names import DEFAULT_SCHEDULER
from policy.snapshot import Phase, Pod

_MAX_EXAMINED = 32
"""Waiting pods of which one tick asks whether they fit: the oldest."""


class Cause(StrEnum):
    """What a service waited for before it ran; of several the last here."""

    FREE = "free"
    """Nothing: kube-scheduler found room with its first attempt."""
    WAITED = "waited"
    """Room, which came without EDL: other pods ended, or a node was added."""
    RELEASED = "released"
    """Trainers that EDL released for it."""
    PREEMPTED = "preempted"
    """Victims of kube-scheduler's preemption."""


_ORDER = tuple(Cause)


@dataclass(frozen=True, slots=True)
class ServiceStart:
    """A service that runs now."""

    cause: Cause
    seconds: float
    """Since its creation."""


class ServiceStarts:
    """Follows the pods of services that do not run yet."""

    def __init__(self) -> None:
        self._causes: dict[str, Cause] = {}
        """uid of a pod without running containers -> what it has waited for so far."""
        self._gated: set[str] = set()
        """uids of pods that had a scheduling gate: how long that takes is another's business."""

    def note_released(self, uids: Iterable[str]) -> None:
        """Notes that trainers were released for these pods."""
        for uid in uids:
            if uid in self._causes:
                self._raise(uid, Cause.RELEASED)

    def observe(self, changes: Mapping[str, ObjectChange[Pod]], now_s: float) -> list[ServiceStart]:
        """Takes in changes of pods; returns the services that have begun to run.

        Args:
            changes: uid -> the newest change of a pod.
            now_s: Seconds since the epoch.
        """
        starts = []
        for uid, change in changes.items():
            pod = change.new
            if pod is None or pod.is_training or pod.terminal or pod.deleting:
                self._forget(uid)
            elif pod.phase is Phase.PENDING:
                self._take_in(pod)
            elif pod.phase is Phase.RUNNING:
                last = change.last
                if uid not in self._causes and last is not None and last.phase is Phase.PENDING:
                    self._take_in(last)
                if uid in self._causes and uid not in self._gated:
                    waited_s = max(0.0, now_s - pod.created_s)
                    starts.append(ServiceStart(self._causes[uid], waited_s))
                self._forget(uid)
        return starts

    def _take_in(self, pod: Pod) -> None:
        if pod.gated:
            self._gated.add(pod.uid)
        self._causes.setdefault(pod.uid, Cause.FREE)
        if pod.nominated:
            self._raise(pod.uid, Cause.PREEMPTED)
        elif pod.refused:
            self._raise(pod.uid, Cause.WAITED)

    def _raise(self, uid: str, cause: Cause) -> None:
        self._causes[uid] = max(self._causes[uid], cause, key=_ORDER.index)

    def _forget(self, uid: str) -> None:
        self._causes.pop(uid, None)
        self._gated.discard(uid)


def waiting(cluster: ClusterState) -> list[Pod]:
    """The services without a node, the oldest first; those behind a scheduling gate left out."""
    pods = (pod for pod in cluster.waiting.values() if not (pod.is_training or pod.gated))
    return sorted(pods, key=lambda pod: (pod.created_s, pod.uid))


def longest_starved_s(services: Iterable[Pod], cluster: ClusterState, now_s: float) -> float:
    """How long a service has waited that would fit if surplus trainers left; 0 for none.

    Left out is what training cannot help: pods that wait for a volume or a place of their own, have
    another scheduler, or are larger than what any node could free.

    Args:
        services: As `waiting` returns them.
        cluster: The cluster.
        now_s: Seconds since the epoch.
    """
    able = [
        pod
        for pod in services
        if pod.only_resources
        and pod.preempts
        and pod.scheduler == DEFAULT_SCHEDULER
        and not pod.constraints.only_node
    ]
    for pod in able[:_MAX_EXAMINED]:
        if cluster.slots(pod.requests, pod.constraints).total:
            return max(0.0, now_s - pod.created_s)
    return 0.0
