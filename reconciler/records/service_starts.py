"""Measures how long services take from creation until they run, and what they waited for. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kube.object_change import ObjectChange
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Phase, Pod
from policy.document.model import ReclaimCause
from policy.names import DEFAULT_SCHEDULER

_MAX_EXAMINED = 32
"""Maximum number of waiting pods per tick, oldest first, whose placement is checked."""

_ORDER = tuple(ReclaimCause)
RECLAIMS = (ReclaimCause.RELEASED, ReclaimCause.PREEMPTED)
"""The causes for which training gives capacity back to services."""


@dataclass(slots=True)
class ServiceWait:
    """A service that does not run yet; times are by this process's clock, 0 if unknown."""

    pod: Pod
    """The pod as last seen."""
    cause: ReclaimCause = ReclaimCause.FREE
    """What the service has been waiting for."""
    decided_s: float = 0.0
    """When trainers were first released or preempted for the service."""
    bound_s: float = 0.0
    """When the service's pod was bound to a node."""


@dataclass(frozen=True, slots=True)
class ServiceStart:
    """A service that has started to run."""

    wait: ServiceWait
    seconds: float
    """Seconds since its creation."""

    @property
    def cause(self) -> ReclaimCause:
        """What the service waited for."""
        return self.wait.cause

    @property
    def stages(self) -> dict[str, float]:
        """Seconds by stage: until the decision by EDL or kube-scheduler, until bound, and until running.

        The creation time is in whole seconds of the API server's clock, so negative values become 0.
        """
        decided_s = self.wait.decided_s or self.wait.pod.created_s
        bound_s = max(self.wait.bound_s or decided_s, decided_s)
        ran_s = self.wait.pod.created_s + self.seconds
        return {
            "decide": max(0.0, decided_s - self.wait.pod.created_s),
            "free": bound_s - decided_s,
            "start": max(0.0, ran_s - bound_s),
        }


class ServiceStarts:
    """The services that are not running yet, and what they wait for."""

    def __init__(self) -> None:
        self._waits: dict[str, ServiceWait] = {}
        """uid of a pod without running containers -> its wait."""
        self.reclaiming: dict[str, ServiceWait] = {}
        """The waiting services for which trainers were released or preempted."""
        self._gated: set[str] = set()
        """uids of pods that had a scheduling gate, whose duration EDL cannot influence."""

    def note_released(self, uids: Iterable[str], now_s: float) -> None:
        """Records that trainers were released for these pods."""
        for uid in uids:
            if uid in self._waits:
                self._raise(uid, ReclaimCause.RELEASED, now_s)

    def observe(self, changes: Mapping[str, ObjectChange[Pod]], now_s: float) -> list[ServiceStart]:
        """Processes changes of pods; returns the services that have started to run.

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
                self._take_in(pod, now_s)
            elif pod.phase is Phase.RUNNING:
                # Changes between two ticks are merged, so one change may cover Pending and Running.
                last = change.last
                if uid not in self._waits and last is not None and last.phase is Phase.PENDING:
                    self._take_in(last, now_s)
                if uid in self._waits and uid not in self._gated:
                    wait = self._waits[uid]
                    wait.bound_s = wait.bound_s or now_s
                    starts.append(ServiceStart(wait, max(0.0, now_s - pod.created_s)))
                self._forget(uid)
        return starts

    def _take_in(self, pod: Pod, now_s: float) -> None:
        if pod.gated:
            self._gated.add(pod.uid)
        wait = self._waits.setdefault(pod.uid, ServiceWait(pod))
        wait.pod = pod
        if pod.node and not wait.bound_s:
            wait.bound_s = now_s
        if pod.nominated:
            self._raise(pod.uid, ReclaimCause.PREEMPTED, now_s)
        elif pod.refused:
            self._raise(pod.uid, ReclaimCause.WAITED, now_s)

    def _raise(self, uid: str, cause: ReclaimCause, now_s: float) -> None:
        wait = self._waits[uid]
        wait.cause = max(wait.cause, cause, key=_ORDER.index)
        if wait.cause in RECLAIMS and uid not in self._gated:
            wait.decided_s = wait.decided_s or now_s
            self.reclaiming[uid] = wait

    def _forget(self, uid: str) -> None:
        self._waits.pop(uid, None)
        self.reclaiming.pop(uid, None)
        self._gated.discard(uid)


def waiting(cluster: ClusterState) -> list[Pod]:
    """Returns the services without a node, oldest first, except those with a scheduling gate."""
    pods = (pod for pod in cluster.waiting.values() if not (pod.is_training or pod.gated))
    return sorted(pods, key=lambda pod: (pod.created_s, pod.uid))


def longest_starved_s(services: Iterable[Pod], cluster: ClusterState, now_s: float) -> float:
    """Returns the waiting time of the oldest service that would fit if surplus trainers left, or 0.

    Pods that training cannot help are skipped: they wait for a volume or for a particular node, use
    another scheduler, or are larger than the capacity that any node could free.

    Args:
        services: The result of `waiting`.
        cluster: The cluster state.
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
        # If a service already fits, its slots need not be counted. The plan has cached the result of `fits`.
        fits = cluster.fits(pod.requests, pod.constraints).costs
        if fits or cluster.slots(pod.requests, pod.constraints).total:
            return max(0.0, now_s - pod.created_s)
    return 0.0
