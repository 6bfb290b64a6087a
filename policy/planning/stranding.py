"""Nodes whose trainers must be replaced elsewhere: those that are being drained, lost and deleted ones.

A PodDisruptionBudget lets a drain evict a guaranteed trainer only when its replacement runs. So a
drain has to be recognised by its first sign: a cordon, or a taint that lets no such pod in. Agents
of networks and disks taint a node for the seconds of their own restart, too; no list has all of
their taints, so one that is not known as a drain's counts only when it has been there for a minute.
The API gives the time only for NoExecute, so the plans remember it.
"""

from collections.abc import Collection, Iterable, Mapping

from policy.cluster.placement import tolerated
from policy.cluster.snapshot import RESTART_S, Node, Pod, Taint, Toleration

_OF_CONDITIONS = "node.kubernetes.io/"
"""Prefix of the taints by which Kubernetes itself repeats a node's conditions, its readiness among
them: these come and go. A drain also cordons the node, which is a field of its own."""
_SHUT_DOWN = "node.kubernetes.io/out-of-service"
"""The one with that prefix that an admin adds once a node is off for good."""
_OF_DRAINS = (
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
)
"""Prefixes of the taints by which autoscalers and clouds announce that a node goes."""

TaintKey = tuple[str, str]
"""(node, key of a taint)."""
_MISSING = "edl.training/missing-node"
"""Used as the key of a taint where a node with pods is missing: it was deleted."""
_MISSING_S = 10.0
"""The watch of nodes may be later than that of pods, and a node may be created again. Kubernetes takes up to a
minute to remove the pods of a deleted node."""


class StrandingNodes:
    """The nodes of one plan that new pods of a job must not count on. Never changes."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        now_s: float,
        tainted_since: Mapping[TaintKey, float] | None = None,
        missing: Collection[str] = (),
    ) -> None:
        """Looks at every one of these nodes once.

        Args:
            nodes: Node name -> node; nodes that are ready, not cordoned and without taints may be left out.
            now_s: Seconds since the epoch: nodes count as lost, and some taints count, after a while.
            tainted_since: Since when the `passing_taints` are there; a missing one is new. None
                where nothing is known of them: all count.
            missing: Names of nodes that have pods and do not exist; they count after a while, too.
        """
        since_s = {} if tainted_since is None else tainted_since
        unknown_s = 0.0 if tainted_since is None else now_s
        closed = (name for name, n in nodes.items() if n.unschedulable or n.is_lost(now_s))
        self.gone = frozenset(
            name
            for name in missing
            if now_s - since_s.get((name, _MISSING), unknown_s) >= _MISSING_S
        )
        """The nodes with pods that have been missing for a while: they were deleted."""
        self._for_all = self.gone.union(closed)

        def counts(name: str, taint: Taint) -> bool:
            age_s = now_s - since_s.get((name, taint.key), unknown_s)
            return not _may_pass(taint) or age_s >= RESTART_S

        tainted = {
            name: tuple(taint for taint in _on_purpose(node.taints) if counts(name, taint))
            for name, node in nodes.items()
            if node.taints
        }
        self._tainted = {name: taints for name, taints in tainted.items() if taints}
        self._by_tolerations: dict[tuple[Toleration, ...], frozenset[str]] = {}

    def holds(self, pod: Pod) -> bool:
        """Returns whether a pod is on such a node."""
        if not pod.node or not (self._for_all or self._tainted):
            return False
        return pod.node in self._closed_to(pod.constraints.tolerations)

    def _closed_to(self, tolerations: tuple[Toleration, ...]) -> frozenset[str]:
        names = self._by_tolerations.get(tolerations)
        if names is None:
            closed = (
                name
                for name, taints in self._tainted.items()
                if not all(tolerated(taint, tolerations) for taint in taints)
            )
            names = self._by_tolerations[tolerations] = self._for_all.union(closed)
        return names


def passing_taints(nodes: Mapping[str, Node], missing: Iterable[str] = ()) -> frozenset[TaintKey]:
    """Returns the taints that count only after a while, for the next plan to know their age.

    Args:
        nodes: Nodes with taints.
        missing: Names of nodes that have pods and do not exist.
    """
    taints = (
        (name, taint.key)
        for name, node in nodes.items()
        for taint in _on_purpose(node.taints)
        if _may_pass(taint)
    )
    return frozenset((*taints, *((name, _MISSING) for name in missing)))


def _may_pass(taint: Taint) -> bool:
    """Returns whether a taint may be gone in seconds; NoExecute ends pods at once, so it never counts as one."""
    return taint.effect == "NoSchedule" and not taint.key.startswith(_OF_DRAINS)


def _on_purpose(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Returns the taints that an admin or a controller set on purpose."""
    return tuple(
        taint
        for taint in taints
        if taint.key == _SHUT_DOWN or not taint.key.startswith(_OF_CONDITIONS)
    )
