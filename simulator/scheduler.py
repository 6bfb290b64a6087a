"""kube-scheduler with EDL's extender: one thread that takes pod after pod.

Priority first, then who came first. A pod that finds no room preempts if it may, and waits
until a pod leaves; scores and victims are those that the extender answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from policy import amounts
from policy.crew import is_surplus
from policy.model import Policy
from policy.names import Role
from policy.placement import CHEAPEST, score
from policy.snapshot import Pod
from policy.victims import choose
from simulator import preemption
from simulator.cluster import Change, Cluster, Why
from simulator.timing import Timing


@dataclass(slots=True)
class _Entry:
    """A pod in the queue."""

    number: int
    """In the order of arrival."""
    tries: int = 0
    ready_s: float = 0.0
    """Before this it comes behind all that never failed."""
    parked: bool = False
    """It found no room, and no pod has left since."""


class Scheduler:
    """Binds one pod at a time; virtual time passes meanwhile."""

    def __init__(self, cluster: Cluster, policy: Policy, timing: Timing) -> None:
        self._cluster = cluster
        self._policy = policy
        self._timing = timing
        self._entries: dict[str, _Entry] = {}
        self._numbers = 0
        self._busy = False
        self._cooling: dict[str, float] = {}
        """Node -> until when surplus keeps away, because room was made there for others."""
        cluster.watch_pods(self._changed)

    def _changed(self, change: Change) -> None:
        pod = change.pod
        if change.gone or pod.node or pod.deleting:
            self._entries.pop(pod.uid, None)
        elif pod.uid not in self._entries:
            self._numbers += 1
            self._entries[pod.uid] = _Entry(self._numbers)
        if change.gone and pod.node:
            for entry in self._entries.values():
                entry.parked = False
        self._wake()

    def _wake(self) -> None:
        if not self._busy and any(not entry.parked for entry in self._entries.values()):
            self._busy = True
            self._cluster.clock.after(0.0, self._next)

    def _next(self) -> None:
        """Decides about the first pod; the decision shows when its time is over."""
        uid = self._first()
        if not uid:
            self._busy = False
            return
        pod = self._cluster.index.pods[uid]
        node = self._best(pod)
        took_s = self._timing.bind_s
        if not node:
            took_s += self._timing.preempt_s if pod.preempts else 0.0
            self._failed(pod)
        self._cluster.clock.after(took_s, lambda: self._done(uid, node))

    def _done(self, uid: str, node: str) -> None:
        if uid in self._entries:
            if node:
                self._cluster.bind(uid, node)
            else:
                self._preempt(self._cluster.index.pods[uid])
        self._busy = False
        self._wake()

    def _first(self) -> str:
        """The next pod; those that back off come last, as nothing else is to be done then."""
        now_s = self._cluster.clock.now_s
        pods = self._cluster.index.pods
        waiting = [
            (entry.ready_s > now_s, -pods[uid].priority, entry.number, uid)
            for uid, entry in self._entries.items()
            if not entry.parked
        ]
        return min(waiting)[-1] if waiting else ""

    def _failed(self, pod: Pod) -> None:
        entry, timing = self._entries[pod.uid], self._timing
        wait_s = min(timing.backoff_most_s, timing.backoff_s * 2.0**entry.tries)
        entry.parked = True
        entry.tries += 1
        entry.ready_s = self._cluster.clock.now_s + wait_s

    def _best(self, pod: Pod) -> str:
        """Where kube-scheduler puts a pod by its own filters and the extender's answers."""
        index = self._cluster.index
        pools = self._policy.node_pools if pod.role is Role.TRAINER else ()
        promised = preemption.promised(pod, index)
        cooling = self._hot(pod)
        costs = {
            name: cost
            for name, cost in index.fits(pod.requests, pod.constraints, pools).costs.items()
            if name not in cooling
            and (name not in promised or self._fits_beside(pod, name, promised[name]))
        }
        if not costs:
            return ""
        if not pod.is_training:
            return max(costs, key=lambda name: self._in_tree(pod, name))
        if pod.planned in costs:
            costs[pod.planned] = CHEAPEST
        scores = score(costs)
        return max(costs, key=lambda name: (scores[name], *self._in_tree(pod, name)))

    def _fits_beside(self, pod: Pod, name: str, promised: Mapping[str, int]) -> bool:
        free = self._cluster.index.free(name)
        amounts.subtract(free, promised)
        return amounts.within(pod.requests, free)

    def _in_tree(self, pod: Pod, name: str) -> tuple[int, int]:
        """LeastAllocated, in whole points as it scores; equals are drawn, here by their names."""
        index = self._cluster.index
        free, all_of_it = index.available[name], index.nodes[name].allocatable
        points = [
            100 * (free.get(resource, 0) - pod.requests.get(resource, 0)) // all_of_it[resource]
            for resource in ("cpu", "memory")
            if all_of_it.get(resource, 0) > 0
        ]
        least = sum(points) // len(points) if points else 0
        return least, crc32(f"{pod.uid} {name}".encode())

    def _hot(self, pod: Pod) -> frozenset[str]:
        """Nodes that surplus keeps away from while somebody waits who outranks it."""
        waiting = self._cluster.index.waiting.values()
        if not is_surplus(pod) or all(other.priority <= pod.priority for other in waiting):
            return frozenset()
        now_s = self._cluster.clock.now_s
        return frozenset(name for name, until_s in self._cooling.items() if until_s > now_s)

    def _preempt(self, pod: Pod) -> None:
        index = self._cluster.index
        if not pod.preempts or preemption.makes_way(pod, index):
            return
        proposals = preemption.propose(pod, index, self._policy.node_pools)
        weights = self._policy.fairness.queue_weights
        chosen = choose(pod, proposals, index, weights=weights)
        if chosen is None:
            return
        self._cooling[chosen.node] = (
            self._cluster.clock.now_s + self._policy.stability.cool_down_seconds
        )
        for uid in chosen.uids:
            self._cluster.stop(uid, Why.PREEMPTED)
        self._cluster.nominate(pod.uid, chosen.node)
