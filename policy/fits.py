"""Caches, for each shape of pod, the nodes that it fits on and the cost of each.

Extender and plan need the same answer from the same records: which nodes admit such a pod, have
capacity for it now, and how much it would fragment that capacity (`placement.Packing`). The first
call for a shape prices every node; later calls price the nodes that changed since.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappush

from policy import amounts
from policy.model import NodePool
from policy.placement import Packing, admits
from policy.snapshot import Constraints, Node, Resources

Cost = tuple[int, int]
"""(fragmentation cost, free CPU that remains) of a placement; lower is better."""
Entry = tuple[Cost, str, int]
"""Cost, node, and the node's version when it was priced; an older version makes it stale."""

_MAX_PRICES = 500_000
"""Cached costs in total; beyond it the least recently used shapes are evicted."""


class NodeChangeLog:
    """A bounded log of changed nodes, for readers that each keep their own read position."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        """Node -> position of its newest change; a removed node has none."""
        self.end = 0
        self._names: list[str] = []
        self._start = 0

    def add(self, node: str, *, exists: bool) -> None:
        """Records that a node was added, changed or removed."""
        self._names.append(node)
        self.end += 1
        if exists:
            self.versions[node] = self.end
        else:
            self.versions.pop(node, None)
        if len(self._names) > 1000 + 2 * len(self.versions):
            retained = len(self._names) // 2
            self._start = self.end - retained
            self._names = self._names[-retained:]

    def since(self, position: int) -> Iterable[str] | None:
        """The nodes that changed after `position`, each once; None where the log starts later."""
        if position < self._start:
            return None
        return dict.fromkeys(self._names[position - self._start :])


class OpenNodes:
    """The nodes that admit pods of some constraints, regardless of what is free there."""

    def __init__(self, constraints: Constraints, pools: tuple[NodePool, ...]) -> None:
        self._constraints = constraints
        self._pools = pools
        self._position = -1
        self.names: set[str] = set()

    def refresh(self, nodes: Mapping[str, Node], changes: NodeChangeLog) -> None:
        """Checks the nodes that changed since the last call."""
        names = changes.since(self._position)
        if names is None:
            self.names.clear()
            only_node = self._constraints.only_node
            names = (only_node,) if only_node else nodes
        for name in names:
            node = nodes.get(name)
            if node is not None and admits(node, self._constraints, self._pools) is None:
                self.names.add(name)
            else:
                self.names.discard(name)
        self._position = changes.end


class Fits:
    """The costs of one shape of pod on the nodes of an `OpenNodes`."""

    def __init__(self, requests: Resources, open_nodes: OpenNodes) -> None:
        self._requests = requests
        self._open = open_nodes
        self._position = -1
        self.costs: dict[str, Cost] = {}
        """Open nodes with enough free capacity now -> cost."""
        self._heap: list[Entry] = []

    def refresh(
        self, available: Mapping[str, Resources], changes: NodeChangeLog, packing: Packing
    ) -> None:
        """Prices the nodes that changed since the last call; `OpenNodes` must be up to date."""
        names = changes.since(self._position)
        self._position = changes.end
        if names is None:
            self.costs.clear()
            for name in self._open.names:
                self._price(name, available, packing)
            self._rebuild(changes)
            return
        for name in names:
            self._price(name, available, packing)
            if name in self.costs:
                heappush(self._heap, (self.costs[name], name, changes.versions[name]))
        if len(self._heap) > 100 + 2 * len(self.costs):
            self._rebuild(changes)

    def _price(self, name: str, available: Mapping[str, Resources], packing: Packing) -> None:
        if name in self._open.names and amounts.within(self._requests, available[name]):
            self.costs[name] = packing.cost(self._requests, available[name])
        else:
            self.costs.pop(name, None)

    def _rebuild(self, changes: NodeChangeLog) -> None:
        self._heap = [(cost, name, changes.versions[name]) for name, cost in self.costs.items()]
        heapify(self._heap)

    def heap(self) -> list[Entry]:
        """A copy of the heap of entries, the cheapest first; some entries may be stale."""
        return self._heap.copy()


_Key = tuple[tuple[tuple[str, int], ...], Constraints, bool]


class Prices:
    """The `Fits` of all shapes in use; each `policy.cluster_state.ClusterState` has one."""

    def __init__(self, nodes: Mapping[str, Node], available: Mapping[str, Resources]) -> None:
        """Reads `nodes` and `available` (node -> what is free), and never writes to them."""
        self._nodes = nodes
        self._available = available
        self.changes = NodeChangeLog()
        self._packing = Packing((), {})
        self._pools: tuple[NodePool, ...] = ()
        self._open: dict[tuple[Constraints, bool], OpenNodes] = {}
        self._fits: dict[_Key, Fits] = {}

    def pack_by(self, packing: Packing) -> None:
        """Sets the packing that costs are computed with."""
        if packing is not self._packing:
            self._packing = packing
            self._fits.clear()

    def open_nodes(self, constraints: Constraints, pools: tuple[NodePool, ...]) -> OpenNodes:
        """The nodes that admit such a pod.

        Not cached for a pod that one node is named for: a DaemonSet has as many such constraints as
        there are nodes.
        """
        if constraints.only_node:
            open_nodes = OpenNodes(constraints, pools)
            open_nodes.refresh(self._nodes, self.changes)
            return open_nodes
        if pools and pools != self._pools:
            self._pools = pools
            self._open.clear()
            self._fits.clear()
        key = (constraints, bool(pools))
        if key not in self._open:
            if len(self._open) * len(self._nodes) >= _MAX_PRICES:
                self._open.clear()
                self._fits.clear()
            self._open[key] = OpenNodes(constraints, pools)
        self._open[key].refresh(self._nodes, self.changes)
        return self._open[key]

    def fits(
        self, requests: Resources, constraints: Constraints, pools: tuple[NodePool, ...]
    ) -> Fits:
        """The nodes that such a pod fits on, with their costs."""
        open_nodes = self.open_nodes(constraints, pools)
        key = (tuple(sorted(requests.items())), constraints, bool(pools))
        fits = self._fits.pop(key, None) or Fits(requests, open_nodes)
        fits.refresh(self._available, self.changes, self._packing)
        if constraints.only_node:
            return fits
        self._fits[key] = fits
        while len(self._fits) > 1 and self._priced() > _MAX_PRICES:
            del self._fits[next(iter(self._fits))]
        return fits

    def _priced(self) -> int:
        return sum(len(fits.costs) for fits in self._fits.values())
