"""Training that is lost with trainers which end before their work is committed, by cause. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kube.object_change import ObjectChange
from policy.cluster.snapshot import Phase, Pod
from policy.planning.plan import Release
from runtime.bounded_dict import BoundedDict

EVICTED = "Evicted"
"""The cause of those that somebody else ends: kube-scheduler's preemption, a drain, a user."""
FAILED = "Failed"
"""The cause of those whose program fails."""
_MAX_ENTRIES = 20_000


@dataclass(frozen=True, slots=True)
class Loss:
    """A trainer that begins to leave before its work is done."""

    pod: Pod
    cause: str
    """A `Reason` of EDL's release; EVICTED or FAILED."""

    @property
    def seconds(self) -> float:
        """Seconds of training that are lost with it, as its master has reported."""
        return self.pod.uncommitted_s


class Losses:
    """Sums the uncommitted seconds of trainers when they begin to leave; each counts once."""

    def __init__(self) -> None:
        self._reasons = BoundedDict[str, str](_MAX_ENTRIES)
        """uid of a trainer that EDL releases -> why."""
        self._counted = BoundedDict[str, None](_MAX_ENTRIES)
        """uids of trainers that are leaving, and were counted."""

    def note(self, releases: Iterable[Release]) -> None:
        """Notes why EDL releases trainers; call it before their changes are observed."""
        for release in releases:
            self._reasons[release.uid] = str(release.reason)

    def observe(self, changes: Mapping[str, ObjectChange[Pod]]) -> list[Loss]:
        """Takes in changes of pods; returns the trainers that have begun to leave."""
        losses = []
        for uid, change in changes.items():
            pod = change.new or change.last
            if pod is None or not pod.is_training:
                continue
            if _is_leaving(change) and uid not in self._counted:
                self._counted[uid] = None
                cause = self._cause(pod)
                if cause:
                    losses.append(Loss(pod, cause))
            if change.new is None:
                self._counted.pop(uid, None)
                self._reasons.pop(uid, None)
        return losses

    def _cause(self, pod: Pod) -> str:
        """Why a trainer leaves; "" for one whose program has ended well."""
        reason = self._reasons.get(pod.uid, "")
        if reason:
            return reason
        if pod.deleting or pod.disrupted or not pod.terminal:
            return EVICTED
        return FAILED if pod.phase is Phase.FAILED else ""


def _is_leaving(change: ObjectChange[Pod]) -> bool:
    """Whether a pod leaves or ends by this change; one that had ended before has left already."""
    last, new = change.last, change.new
    if last is None or last.terminal:
        return False
    return new is None or new.deleting or new.terminal
