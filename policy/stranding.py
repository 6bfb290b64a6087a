"""Nodes whose trainers must be replaced elsewhere: those that are being drained, and lost ones.

A PodDisruptionBudget lets a drain evict a guaranteed trainer only when its replacement runs. So a
drain has to be recognised by its first sign: a cordon, or a taint that lets no such pod in.
"""

from collections.abc import Mapping

from policy.placement import tolerated
from policy.snapshot import Node, Pod, Taint, Toleration

_OF_CONDITIONS = "node.kubernetes.io/"
"""Prefix of the taints by which Kubernetes itself repeats a node's conditions, its readiness among
them: these come and go. A drain's cordon is a field of the node, too."""
_SHUT_DOWN = "node.kubernetes.io/out-of-service"
"""The one with that prefix that an admin adds, once a node is off for good."""


class StrandingNodes:
    """The nodes of one plan that new pods of a job must not count on. Never changes."""

    def __init__(self, nodes: Mapping[str, Node], now_s: float) -> None:
        """Looks at every node once.

        Args:
            nodes: Node name -> node.
            now_s: Seconds since the epoch: a node counts as lost after some time.
        """
        closed = (name for name, n in nodes.items() if n.unschedulable or n.is_lost(now_s))
        self._for_all = frozenset(closed)
        tainted = {name: _lasting(n.taints) for name, n in nodes.items() if n.taints}
        self._tainted = {name: taints for name, taints in tainted.items() if taints}
        self._by_tolerations: dict[tuple[Toleration, ...], frozenset[str]] = {}

    def holds(self, pod: Pod) -> bool:
        """Whether a pod is on such a node."""
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


def _lasting(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """The taints that somebody set on purpose."""
    return tuple(
        taint
        for taint in taints
        if taint.key == _SHUT_DOWN or not taint.key.startswith(_OF_CONDITIONS)
    )
