"""The simulated kube-scheduler, with or without EDL's extender: one thread that schedules pod after pod.

Pods are ordered by priority, then arrival. A pod that fits on no node preempts if it may, and otherwise waits
until a pod ends. Scores and victims come from the extender's code, or follow kube-scheduler's own rules.
"""

from collections.abc import Collection
from dataclasses import dataclass
from zlib import crc32

from policy.backoff import pause_s
from policy.cluster.live_trainers import is_surplus
from policy.cluster.placement import CHEAPEST, score
from policy.cluster.snapshot import Pod
from policy.document.model import Policy
from policy.names import Role
from policy.planning import preemption
from policy.planning.recent_history import CoolDowns
from policy.planning.victims import choose, expected
from simulator.cluster import DisruptionReason, PodChange, SimulatedCluster
from simulator.timing import Timing


@dataclass(slots=True)
class _Entry:
    """A pod in the scheduling queue."""

    number: int
    """Sequence number of the pod's arrival."""
    tries: int = 0
    ready_s: float = 0.0
    """End of the pod's back-off; until then, pods that are not in back-off come first."""
    parked: bool = False
    """Whether the pod fitted on no node, and no pod has ended since then."""


class SimulatedScheduler:
    """A scheduler that handles one pod at a time, and takes some virtual time for each."""

    def __init__(
        self, cluster: SimulatedCluster, policy: Policy, timing: Timing, *, extender: bool = True
    ) -> None:
        self._extender = extender
        self._cluster = cluster
        self._policy = policy
        self._timing = timing
        self._entries: dict[str, _Entry] = {}
        self._numbers = 0
        self._busy = False
        self._cool_downs = CoolDowns()
        """Cool-downs of nodes that surplus trainers avoid after a preemption."""
        cluster.watch_pods(self._changed)

    def follow(self, policy: Policy) -> None:
        """Follows another policy from now on."""
        self._policy = policy

    def _changed(self, change: PodChange) -> None:
        pod = change.pod
        if change.deleted or pod.node or pod.deleting:
            self._entries.pop(pod.uid, None)
        elif pod.uid not in self._entries:
            self._numbers += 1
            self._entries[pod.uid] = _Entry(self._numbers)
        if change.deleted and pod.node:
            for entry in self._entries.values():
                entry.parked = False
        self._wake()

    def _wake(self) -> None:
        if not self._busy and any(not entry.parked for entry in self._entries.values()):
            self._busy = True
            self._cluster.clock.after(0.0, self._next)

    def _next(self) -> None:
        """Decides about the first pod; the decision takes effect once its virtual time has passed."""
        uid = self._first()
        if not uid:
            self._busy = False
            return
        pod = self._cluster.state.pods[uid]
        node = self._best_node(pod)
        duration_s = self._timing.bind_s
        if not node:
            duration_s += self._timing.preempt_s if pod.preempts else 0.0
            self._park(pod)
        self._cluster.clock.after(duration_s, lambda: self._done(uid, node))

    def _done(self, uid: str, node: str) -> None:
        if uid in self._entries:
            if node:
                self._cluster.bind(uid, node)
            else:
                self._preempt(self._cluster.state.pods[uid])
        self._busy = False
        self._wake()

    def _first(self) -> str:
        """Returns the next pod to schedule; a pod in back-off is only chosen if no other pod is waiting."""
        now_s = self._cluster.clock.now_s
        pods = self._cluster.state.pods
        waiting = [
            (entry.ready_s > now_s, -pods[uid].priority, entry.number, uid)
            for uid, entry in self._entries.items()
            if not entry.parked
        ]
        return min(waiting)[-1] if waiting else ""

    def _park(self, pod: Pod) -> None:
        entry, timing = self._entries[pod.uid], self._timing
        entry.parked = True
        entry.tries += 1
        wait_s = pause_s(timing.backoff_s, timing.max_backoff_s, entry.tries)
        entry.ready_s = self._cluster.clock.now_s + wait_s

    def _best_node(self, pod: Pod) -> str:
        """Returns the best node for a pod, or "" if it fits on none.

        The choice follows kube-scheduler's own filters and the extender's answers. Without the extender, a
        trainer prefers its planned node by affinity, above all other scores.
        """
        state = self._cluster.state
        pools = self._policy.node_pools if pod.role is Role.TRAINER else ()
        promised = preemption.promised(pod, state)
        cooling = self._cooling_nodes(pod) if self._extender else ()
        costs = {
            name: cost
            for name, cost in state.fits(pod.requests, pod.constraints, pools).costs.items()
            if name not in cooling
            and (name not in promised or state.fits_beside(pod.requests, name, promised[name]))
        }
        if not costs:
            return ""
        # Without the extender, affinity decides for trainers, and LeastAllocated for all others. With it,
        # the extender's scores decide for training pods.
        if not self._extender and pod.planned in costs:
            return pod.planned
        if not (pod.is_training and self._extender):
            return max(costs, key=lambda name: self._least_allocated(pod, name))
        if pod.planned in costs:
            costs[pod.planned] = CHEAPEST
        scores = score(costs)
        return max(costs, key=lambda name: (scores[name], *self._least_allocated(pod, name)))

    def _least_allocated(self, pod: Pod, name: str) -> tuple[int, int]:
        """Returns the integer score of LeastAllocated; ties are broken by a hash of the names."""
        state = self._cluster.state
        free, allocatable = state.available[name], state.nodes[name].allocatable
        points = [
            100 * (free.get(resource, 0) - pod.requests.get(resource, 0)) // allocatable[resource]
            for resource in ("cpu", "memory")
            if allocatable.get(resource, 0) > 0
        ]
        least = sum(points) // len(points) if points else 0
        return least, crc32(f"{pod.uid} {name}".encode())

    def _cooling_nodes(self, pod: Pod) -> Collection[str]:
        """Returns the cooling nodes, which surplus trainers avoid while a pod of higher priority waits."""
        waiting = self._cluster.state.waiting.values()
        if not is_surplus(pod) or all(
            waiting_pod.priority <= pod.priority for waiting_pod in waiting
        ):
            return ()
        return self._cool_downs.cooling(self._cluster.clock.now_s)

    def _preempt(self, pod: Pod) -> None:
        state = self._cluster.state
        if not pod.preempts or preemption.waits_for_victims(pod, state):
            return
        proposals = preemption.propose(pod, state, self._policy.node_pools)
        if self._extender:
            weights = self._policy.fairness.queue_weights
            candidate = choose(pod, proposals, state, weights=weights)
        else:
            candidate = expected(proposals, state)
        if candidate is None:
            return
        cool_down_s = self._policy.stability.cool_down_seconds
        self._cool_downs.start(candidate.node, self._cluster.clock.now_s, cool_down_s)
        for uid in candidate.uids:
            self._cluster.stop(uid, DisruptionReason.PREEMPTED)
        self._cluster.nominate(pod.uid, candidate.node)
