"""Counts, by cause, the training that is lost when trainers end before their work is committed. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kube.object_change import ObjectChange
from policy.cluster.snapshot import Phase, Pod
from policy.planning.plan import Release
from runtime.bounded_dict import BoundedDict

EVICTED = "Evicted"
"""Cause for trainers that EDL did not end: kube-scheduler preempted them, or a node drain or a user ended them."""
FAILED = "Failed"
"""Cause for trainers whose program failed."""
_MAX_ENTRIES = 20_000


@dataclass(frozen=True, slots=True)
class Loss:
    """A trainer that starts to leave before its work is committed."""

    pod: Pod
    cause: str
    """The `Reason` of EDL's release, EVICTED or FAILED."""

    @property
    def seconds(self) -> float:
        """Seconds of training that are lost with the trainer, as reported by its job's master."""
        return self.pod.uncommitted_s


class Losses:
    """Adds up the uncommitted seconds of trainers that start to leave; each trainer counts once."""

    def __init__(self) -> None:
        self._reasons = BoundedDict[str, str](_MAX_ENTRIES)
        """uid of a trainer that EDL releases -> the reason."""
        self._counted = BoundedDict[str, None](_MAX_ENTRIES)
        """uids of leaving trainers that were counted already."""

    def note(self, releases: Iterable[Release]) -> None:
        """Records why EDL releases trainers; must be called before their changes are observed."""
        for release in releases:
            self._reasons[release.uid] = str(release.reason)

    def observe(self, changes: Mapping[str, ObjectChange[Pod]]) -> list[Loss]:
        """Processes changes of pods; returns the trainers that have started to leave."""
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
        """Returns why a trainer leaves, or "" if its program succeeded."""
        reason = self._reasons.get(pod.uid, "")
        if reason:
            return reason
        if pod.deleting or pod.disrupted or not pod.terminal:
            return EVICTED
        return FAILED if pod.phase is Phase.FAILED else ""


def _is_leaving(change: ObjectChange[Pod]) -> bool:
    """Returns whether this change makes a pod that had not ended start to leave, or end."""
    last, new = change.last, change.new
    if last is None or last.terminal:
        return False
    return new is None or new.deleting or new.terminal
