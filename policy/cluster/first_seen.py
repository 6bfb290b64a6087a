"""When this process first saw pods appear, start, end and be deleted, by its own clock.

Timestamps in objects come from the clocks of the API server and the kubelets. They are good enough to
sort pods. A duration between such a timestamp and the local clock is wrong by the difference between the
clocks, and the plan decides by durations of seconds. It therefore measures them from the time when this
process first saw the change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from policy.cluster.snapshot import Node, Pod

CLOCKS_DIFFER_S = 60.0
"""Assumed difference of clocks for objects older than this process, for which only timestamps are known.
Durations come out too short rather than too long, by at most twice this value."""


@dataclass(slots=True)
class OwnTimes:
    """When one pod's changes happened by the local clock; 0 for a change that was not seen yet."""

    created_s: float
    started_s: float = 0.0
    ended_s: float = 0.0
    deleted_s: float = 0.0


class FirstSeen:
    """Local times of the changes of pods and nodes, kept from the first `put_...` until `drop_...`.

    If nothing was ever put, as for a snapshot, timestamps count as they are. Otherwise a pod that was not
    put yet has just been created by this process.
    """

    def __init__(self) -> None:
        self._pods: dict[str, OwnTimes] = {}
        self._nodes: dict[str, tuple[float, float]] = {}
        """Node -> (timestamp of the newest change of its readiness, local time of that change)."""
        self._used = False

    @classmethod
    def of(cls, times: Mapping[str, OwnTimes] | None) -> "FirstSeen":
        """Restores recorded times (pod uid -> its times); `times` is None if nothing had been put."""
        first_seen = cls()
        if times is not None:
            first_seen._pods.update(times)
            first_seen._used = True
        return first_seen

    @property
    def times(self) -> Mapping[str, OwnTimes] | None:
        """A copy of the times, in the form that `of` restores; None if nothing was put."""
        return {uid: replace(times) for uid, times in self._pods.items()} if self._used else None

    def put_pod(self, pod: Pod, at_s: float, *, listed: bool) -> Pod:
        """Records a pod's times; returns the pod with the end of its grace period by the local clock.

        Args:
            pod: The pod as it is now.
            at_s: Local time at which this state was seen, in seconds since the epoch.
            listed: Whether the pod comes from a list, so that its changes may be much older than `at_s`.
        """
        self._used = True
        times = self._pods.get(pod.uid)
        if times is None:
            times = self._pods[pod.uid] = OwnTimes(_own_s(pod.created_s, at_s, listed=listed))
        if pod.started_s and not times.started_s:
            times.started_s = _own_s(pod.started_s, at_s, listed=listed)
        if pod.terminal and not times.ended_s:
            times.ended_s = _own_s(pod.ended_s, at_s, listed=listed)
        if not pod.leaves_by_s:
            return pod
        if not times.deleted_s:
            times.deleted_s = _own_s(pod.deleted_s, at_s, listed=listed)
        grace_s = pod.leaves_by_s - pod.deleted_s
        return replace(pod, leaves_by_s=times.deleted_s + grace_s)

    def drop_pod(self, uid: str) -> None:
        """Forgets a pod; an unknown uid is ignored."""
        self._pods.pop(uid, None)

    def put_node(self, node: Node, at_s: float, *, listed: bool) -> Node:
        """Records a node; returns it with the local time at which it stopped being ready.

        Args:
            node: The node as it is now.
            at_s: Local time at which this state was seen.
            listed: Whether the node comes from a list; see `put_pod`.
        """
        stamp_s, own_s = self._nodes.get(node.name, (0.0, 0.0))
        if not node.unready_s:
            self._nodes.pop(node.name, None)
            return node
        if stamp_s != node.unready_s:
            own_s = _own_s(node.unready_s, at_s, listed=listed)
            self._nodes[node.name] = node.unready_s, own_s
        return replace(node, unready_s=own_s)

    def drop_node(self, name: str) -> None:
        """Forgets a node; an unknown name is ignored."""
        self._nodes.pop(name, None)

    def created_s(self, pod: Pod, now_s: float) -> float:
        """Returns when a pod was created."""
        times = self._pods.get(pod.uid)
        return times.created_s if times is not None else self._unseen_s(pod.created_s, now_s)

    def started_s(self, pod: Pod, now_s: float) -> float:
        """Returns when a pod's kubelet accepted it; 0 before that."""
        times = self._pods.get(pod.uid)
        if times is not None or not pod.started_s:
            return times.started_s if times is not None else 0.0
        return self._unseen_s(pod.started_s, now_s)

    def ended_s(self, pod: Pod, now_s: float) -> float:
        """Returns when a pod's containers ended; `now_s` if the pod is gone."""
        times = self._pods.get(pod.uid)
        if times is not None and times.ended_s:
            return times.ended_s
        return self._unseen_s(pod.ended_s, now_s)

    def _unseen_s(self, stamp_s: float, now_s: float) -> float:
        return now_s if self._used else stamp_s


def _own_s(stamp_s: float, at_s: float, *, listed: bool) -> float:
    """Returns the local time of a change seen at `at_s`; `stamp_s` is 0 if it has no timestamp."""
    return min(at_s, stamp_s + CLOCKS_DIFFER_S) if listed and stamp_s else at_s
