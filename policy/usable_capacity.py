"""Capacity of the nodes that trainers may use, of which the policy's reserve is a share.

Control-plane nodes, virtual kubelets, nodes that are cordoned or not ready and those outside the
node pools are empty or full without training's doing: counted in, they would replace the reserve.
"""

from collections.abc import Iterable, Mapping

from policy import amounts
from policy.fits import NodeChangeLog
from policy.model import NodePool
from policy.placement import admits
from policy.snapshot import Constraints, Job, Node, Resources, Toleration

_Key = tuple[frozenset[Toleration], tuple[NodePool, ...]]
_NOTHING: Resources = {}


class UsableCapacity:
    """Sums over the nodes that trainers may use, updated with each change of a node or pod."""

    def __init__(self, nodes: Mapping[str, Node], used: Mapping[str, Resources]) -> None:
        """Reads `nodes` and `used` (node -> requests of its pods), and never writes to them."""
        self._nodes = nodes
        self._used = used
        self._key: _Key = (frozenset(), ())
        self._position = -1
        self._counted: dict[str, tuple[Resources, Resources]] = {}
        """Node -> its allocatable and the requests there, as the sums contain them."""
        self.allocatable: dict[str, int] = {}
        """Sum over the usable nodes."""
        self.in_use: dict[str, int] = {}
        """Requests of all pods that are bound to usable nodes."""

    def __contains__(self, node: str) -> bool:
        """Whether trainers may use a node."""
        return node in self._counted

    def refresh(
        self, jobs: Iterable[Job], pools: tuple[NodePool, ...], changes: NodeChangeLog
    ) -> None:
        """Counts the nodes that changed since the last call.

        All nodes are counted again where the pools changed, or what trainers tolerate.
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
        for name in names:
            self._count(name, constraints, pools)

    def _count(self, name: str, constraints: Constraints, pools: tuple[NodePool, ...]) -> None:
        allocatable, used = self._counted.pop(name, (_NOTHING, _NOTHING))
        amounts.subtract(self.allocatable, allocatable)
        amounts.subtract(self.in_use, used)
        node = self._nodes.get(name)
        if node is not None and admits(node, constraints, pools) is None:
            used = dict(self._used.get(name, _NOTHING))
            self._counted[name] = (node.allocatable, used)
            amounts.add(self.allocatable, node.allocatable)
            amounts.add(self.in_use, used)
