"""The simulated kubelets: they start bound pods, and end pods that are being deleted."""

from functools import partial

from simulator.cluster import PodChange, SimulatedCluster
from simulator.timing import Timing


class SimulatedKubelets:
    """The kubelets of all nodes; containers start and end after fixed delays."""

    def __init__(self, cluster: SimulatedCluster, timing: Timing) -> None:
        self._cluster = cluster
        self._timing = timing
        cluster.watch_pods(self._changed)

    def _changed(self, change: PodChange) -> None:
        old, pod = change.old, change.pod
        if change.deleted or not pod.node:
            return
        clock, timing = self._cluster.clock, self._timing
        if old is None or not old.node:
            clock.after(timing.start_s, partial(self._start, pod.uid))
        elif pod.deleting and not old.deleting:
            clock.after(timing.stop_s, partial(self._cluster.remove, pod.uid))

    def _start(self, uid: str) -> None:
        pod = self._cluster.state.pods.get(uid)
        if pod is not None and not pod.deleting:
            self._cluster.run(uid)
