"""Overlays writes on the cluster state until the watch shows them.

Without this overlay, a plan made between a write and its watch event would repeat the write. It is
kept in memory only: after a restart, the first list already shows every earlier write.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kube.object_change import ObjectChange
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Pod
from runtime.bounded_dict import BoundedDict

PATIENCE_S = 10.0
"""If the event has not arrived within this time, another client is assumed to have undone the write."""
_MAX_ENTRIES = 20_000


class Expectations:
    """Pods that this process created or deleted and whose watch events have not arrived yet."""

    def __init__(self) -> None:
        self._created: dict[str, tuple[Pod, float]] = {}
        """Pod uid -> the created pod, and the time until which its event is expected."""
        self._released = BoundedDict[str, float](_MAX_ENTRIES)
        self._assumed: set[str] = set()
        """uids of pods that this process deleted and that no watch event has shown as terminating."""
        self._deleted = BoundedDict[str, None](_MAX_ENTRIES)

    def expect_creation(self, cluster: ClusterState, pod: Pod, now_s: float) -> None:
        """Adds a created pod to the state, unless a watch event has already shown it or its deletion."""
        if pod.uid not in self._deleted and pod.uid not in cluster.pods:
            self._created[pod.uid] = (pod, now_s + PATIENCE_S)
            cluster.put_pod(cluster.first_seen.put_pod(pod, now_s, listed=False))

    def expect_deletion(self, cluster: ClusterState, uid: str, now_s: float) -> None:
        """Marks a pod in the state as terminating because its eviction or deletion was requested."""
        self._released[uid] = now_s + PATIENCE_S
        pod = cluster.pods.get(uid)
        if pod is not None and not pod.deleting:
            self._assumed.add(uid)
            cluster.put_pod(replace(pod, deleting=True))

    def cancel_deletion(self, cluster: ClusterState, uid: str) -> None:
        """Removes that mark after a refused eviction, unless another client deleted the pod."""
        self._released.pop(uid, None)
        pod = cluster.pods.get(uid)
        if pod is not None and uid in self._assumed:
            cluster.put_pod(replace(pod, deleting=False))

    def was_released(self, uid: str) -> bool:
        """Returns whether EDL released the pod, as far as this process knows."""
        return uid in self._released

    def evicted_by_others(self, changes: Mapping[str, ObjectChange[Pod]]) -> Iterator[Pod]:
        """Yields the training pods, among those with a node, that a client other than EDL is evicting."""
        for uid, change in changes.items():
            pod = change.new or change.last
            if pod is None or not pod.is_training or not pod.node:
                continue
            leaving = pod.disrupted and (pod.deleting or change.new is None)
            if leaving and not self.was_released(uid):
                yield pod

    def observe(
        self, cluster: ClusterState, changes: Mapping[str, ObjectChange[Pod]], now_s: float
    ) -> None:
        """Reapplies the outstanding expectations after the state has taken in `changes`."""
        for uid, change in changes.items():
            self._created.pop(uid, None)
            if change.new is None or change.new.deleting:
                self._assumed.discard(uid)
            if change.new is None:
                self._deleted[uid] = None
            elif not change.new.deleting and self._released.get(uid, 0.0) > now_s:
                self._assumed.add(uid)
                cluster.put_pod(replace(change.new, deleting=True))
        for uid, (_, until_s) in tuple(self._created.items()):
            if until_s <= now_s:
                del self._created[uid]
                cluster.drop_pod(uid)
                cluster.first_seen.drop_pod(uid)
