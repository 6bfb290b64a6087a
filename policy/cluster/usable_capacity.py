"""Capacity of the nodes that trainers may use; the policy's reserve is a share of this capacity.

Control-plane nodes, virtual kubelets, cordoned or lost nodes and nodes outside the node pools do not
count: training does not determine what is free there, and their free capacity would take the place of the
reserve. A node whose kubelet restarts counts until the node is lost: its pods continue to run, and surplus
released for the node's share of the reserve would be missed seconds later.

The amounts in use on a node are capped at its allocatable. A user who names a node in a pod's spec binds
the pod there, whatever it requests, until the kubelet rejects it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from policy.cluster import amounts
from policy.cluster.node_changes import NodeChangeLog
from policy.cluster.placement import admits
from policy.cluster.snapshot import Constraints, Job, Node, Resources, Toleration
from policy.document.model import NodePool

_Key = tuple[frozenset[Toleration], tuple[NodePool, ...]]
_NOTHING: Resources = {}
_OF_READINESS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints that Kubernetes adds to a node that is not ready; they repeat its Ready condition."""


class UsableCapacity:
    """Sums over the nodes that trainers may use, updated with each change of a node or pod."""

    def __init__(self, nodes: Mapping[str, Node], used: Mapping[str, Resources]) -> None:
        """Reads `nodes` and `used` (node -> requests of its pods), and never writes to them."""
        self._nodes = nodes
        self._used = used
        self._key: _Key = (frozenset(), ())
        self._position = -1
        self._counted: dict[str, tuple[Resources, Resources]] = {}
        """Node -> (its allocatable, the requests there), as the sums contain them."""
        self._restarting: set[str] = set()
        """Nodes that count although they are not ready, for a limited time."""
        self.allocatable: dict[str, int] = {}
        """Sum of allocatable over the usable nodes."""
        self.in_use: dict[str, int] = {}
        """Requests of all pods that are bound to usable nodes."""

    def __contains__(self, node: str) -> bool:
        """Returns whether trainers may use a node."""
        return node in self._counted

    def refresh(
        self,
        jobs: Iterable[Job],
        pools: tuple[NodePool, ...],
        changes: NodeChangeLog,
        now_s: float,
    ) -> None:
        """Recounts the nodes that changed since the last call, and the nodes that are not ready.

        All nodes are counted again if the pools or the tolerations of trainers changed.
        """
        tolerations = (job.constraints.tolerations for job in jobs if not (job.over or job.error))
        key = (frozenset().union(*tolerations), pools)
        names = changes.since(self._position) if key == self._key else None
        self._position, self._key = changes.end, key
        if names is None:
            self._counted.clear()
            self.allocatable.clear()
            self.in_use.clear()
            names = self._nodes
        constraints = Constraints(tolerations=tuple(key[0]))
        for name in self._restarting.union(names):
            self._count(name, constraints, pools, now_s)

    def _count(
        self, name: str, constraints: Constraints, pools: tuple[NodePool, ...], now_s: float
    ) -> None:
        allocatable, used = self._counted.pop(name, (_NOTHING, _NOTHING))
        amounts.subtract(self.allocatable, allocatable)
        amounts.subtract(self.in_use, used)
        self._restarting.discard(name)
        node = self._nodes.get(name)
        if node is not None and _restarts(node, now_s):
            self._restarting.add(name)
            node = _as_ready(node)
        if node is not None and admits(node, constraints, pools) is None:
            used = amounts.at_most(self._used.get(name, _NOTHING), node.allocatable)
            self._counted[name] = (node.allocatable, used)
            amounts.add(self.allocatable, node.allocatable)
            amounts.add(self.in_use, used)


def _restarts(node: Node, now_s: float) -> bool:
    """Returns whether a node is not ready, was ready before, and is not lost."""
    return not node.ready and node.unready_s > 0 and not node.is_lost(now_s)


def _as_ready(node: Node) -> Node:
    """Returns the node without the signs that it is not ready."""
    taints = tuple(taint for taint in node.taints if taint.key not in _OF_READINESS)
    return replace(node, ready=True, taints=taints)
