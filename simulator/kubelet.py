"""The kubelets of all nodes: bound pods start, pods told to stop end."""

from functools import partial

from simulator.cluster import Change, Cluster
from simulator.timing import Timing


class Kubelets:
    """Start and end of containers, each a fixed time after its cause."""

    def __init__(self, cluster: Cluster, timing: Timing) -> None:
        self._cluster = cluster
        self._timing = timing
        cluster.watch_pods(self._changed)

    def _changed(self, change: Change) -> None:
        old, pod = change.old, change.pod
        if change.gone or not pod.node:
            return
        clock, timing = self._cluster.clock, self._timing
        if old is None or not old.node:
            clock.after(timing.start_s, partial(self._start, pod.uid))
        elif pod.deleting and not old.deleting:
            clock.after(timing.stop_s, partial(self._cluster.remove, pod.uid))

    def _start(self, uid: str) -> None:
        pod = self._cluster.index.pods.get(uid)
        if pod is not None and not pod.deleting:
            self._cluster.run(uid)
