"""Nodes whose trainers must be replaced elsewhere: nodes that are being drained, are lost or were deleted.

A PodDisruptionBudget lets a drain evict a guaranteed trainer only when its replacement runs. A drain
therefore has to be recognised by its first sign: a cordon, or a taint that such pods do not tolerate.
Network and storage agents also taint a node for a few seconds while they restart. No list contains all of
their taints, so a taint that is not known to announce a drain counts only once it has existed for a
minute. The API reports since when a taint exists only for NoExecute, so plans remember that time.
"""

from collections.abc import Collection, Iterable, Mapping

from policy.cluster.placement import tolerated
from policy.cluster.snapshot import RESTART_S, Node, Pod, Taint, Toleration

_OF_CONDITIONS = "node.kubernetes.io/"
"""Prefix of the taints that Kubernetes itself adds to repeat a node's conditions, such as its readiness.
They come and go. A drain also cordons the node, which EDL reads from a separate field."""
_SHUT_DOWN = "node.kubernetes.io/out-of-service"
"""The only taint with that prefix that an admin adds, once a node is shut down for good."""
_OF_DRAINS = (
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
)
"""Prefixes of the taints by which autoscalers and cloud providers announce a node's removal."""

TaintKey = tuple[str, str]
"""(node, key of a taint)."""
_MISSING = "edl.training/missing-node"
"""Stands for the key of a taint if a node that has pods is missing, because it was deleted."""
_MISSING_S = 10.0
"""How long a node must be missing to count as deleted: the watch of nodes may lag behind the watch of pods,
and a node may be created again. Kubernetes takes up to a minute to remove the pods of a deleted node."""


class StrandingNodes:
    """The nodes whose trainers must be replaced elsewhere, for one plan; it never changes."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        now_s: float,
        tainted_since: Mapping[TaintKey, float] | None = None,
        missing: Collection[str] = (),
    ) -> None:
        """Examines each of these nodes once.

        Args:
            nodes: Node name -> node; nodes that are ready, not cordoned and without taints may be left out.
            now_s: Seconds since the epoch: lost nodes, missing nodes and some taints count only after a
                while.
            tainted_since: Taint in `passing_taints` -> time since which it exists; a missing taint is
                new. None if no times are known: then all taints count.
            missing: Names of nodes that have pods and do not exist.
        """
        since_s = {} if tainted_since is None else tainted_since
        unknown_s = 0.0 if tainted_since is None else now_s
        closed = (name for name, n in nodes.items() if n.unschedulable or n.is_lost(now_s))
        self.gone = frozenset(
            name
            for name in missing
            if now_s - since_s.get((name, _MISSING), unknown_s) >= _MISSING_S
        )
        """The nodes that have pods and have been missing for a while, because they were deleted."""
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
    """Returns the taints that count only after a while, so that the next plan knows their age.

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
    """Returns whether a taint may be gone in seconds; False for NoExecute, which ends pods at once."""
    return taint.effect == "NoSchedule" and not taint.key.startswith(_OF_DRAINS)


def _on_purpose(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Returns the taints that an admin or a controller set on purpose."""
    return tuple(
        taint
        for taint in taints
        if taint.key == _SHUT_DOWN or not taint.key.startswith(_OF_CONDITIONS)
    )
