"""Caches, for each pod shape, the nodes that such a pod fits on, and the cost of each placement.

Extender and plan need the same answers from the same records: which nodes admit such a pod and have
capacity for it now, and how much the pod would fragment that capacity (`placement.Packing`). The first
call for a shape prices every node; later calls price only the nodes that have changed.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappush

from policy.cluster import amounts
from policy.cluster.node_changes import NodeChangeLog
from policy.cluster.placement import Packing, admits
from policy.cluster.slots import Slots
from policy.cluster.snapshot import Constraints, Node, Resources
from policy.document.model import NodePool

Cost = tuple[int, int]
"""(fragmentation cost, remaining free CPU) of a placement; lower is better."""
Entry = tuple[Cost, str, int]
"""Cost, node, and the node's version when it was priced; the entry is stale if the node has a newer one."""

_MAX_PRICES = 500_000
"""Largest number of cached costs; beyond it, the least recently used shapes are removed."""
_ENTRY = 20
"""Memory of a shape that fits nowhere, as a number of cached costs."""


class OpenNodes:
    """The nodes that admit pods with given constraints, regardless of the nodes' free capacity."""

    def __init__(self, constraints: Constraints, pools: tuple[NodePool, ...]) -> None:
        self._constraints = constraints
        self._pools = pools
        self._position = -1
        self.names: set[str] = set()
        self._largest: tuple[int, Resources] = (-1, {})
        """(`NodeChangeLog.replaced_at`, largest amounts at that time)."""

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

    def largest(self, nodes: Mapping[str, Node], changes: NodeChangeLog) -> Resources:
        """Returns resource -> largest allocatable amount of one of these nodes; call `refresh` first."""
        if self._largest[0] != changes.replaced_at:
            most: dict[str, int] = {}
            for name in self.names:
                for resource, amount in nodes[name].allocatable.items():
                    most[resource] = max(amount, most.get(resource, 0))
            self._largest = changes.replaced_at, most
        return self._largest[1]


class Fits:
    """The costs of placing pods of one shape on the nodes of an `OpenNodes`."""

    def __init__(self, requests: Resources, open_nodes: OpenNodes) -> None:
        self._requests = requests
        self._open = open_nodes
        self._position = -1
        self.costs: dict[str, Cost] = {}
        """Open node with enough free capacity now -> cost."""
        self._heap: list[Entry] = []

    def refresh(
        self, available: Mapping[str, Resources], changes: NodeChangeLog, packing: Packing
    ) -> None:
        """Prices the nodes that changed since the last call; refresh the `OpenNodes` first."""
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
        """Returns a copy of the heap of entries, the cheapest first; some entries may be stale."""
        return self._heap.copy()


Room = Callable[[str], Resources]
"""Node -> amounts there; they may change only with the node itself or with the pods that run there."""
_Key = tuple[tuple[tuple[str, int], ...], Constraints, bool]


class Prices:
    """The `Fits` of all shapes in use; each `policy.cluster.cluster_state.ClusterState` has one."""

    def __init__(self, nodes: Mapping[str, Node], available: Mapping[str, Resources]) -> None:
        """Reads `nodes` and `available` (node -> free capacity), and never writes to them."""
        self._nodes = nodes
        self._available = available
        self.changes = NodeChangeLog()
        self._packing = Packing((), {})
        self._pools: tuple[NodePool, ...] = ()
        self._open: dict[tuple[Constraints, bool], OpenNodes] = {}
        self._open_entries = 0
        """Size of `_open`: its nodes, and the values in its constraints, which tenants write."""
        self._fits: dict[_Key, Fits] = {}
        self._slots: dict[tuple[_Key, Room], Slots] = {}

    def pack_by(self, packing: Packing) -> None:
        """Sets the packing that computes the costs."""
        if packing is not self._packing:
            self._packing = packing
            self._fits.clear()

    def open_nodes(self, constraints: Constraints, pools: tuple[NodePool, ...]) -> OpenNodes:
        """Returns the nodes that admit such a pod.

        The result is not cached for a pod whose constraints name a single node: the pods of a DaemonSet
        have as many different constraints as there are nodes.
        """
        if constraints.only_node:
            open_nodes = OpenNodes(constraints, pools)
            open_nodes.refresh(self._nodes, self.changes)
            return open_nodes
        if pools and pools != self._pools:
            self._pools = pools
            self._clear()
        key = (constraints, bool(pools))
        if key not in self._open:
            entries = _ENTRY + len(self._nodes) + constraints.size
            if self._open_entries + entries > _MAX_PRICES:
                self._clear()
            self._open_entries += entries
            self._open[key] = OpenNodes(constraints, pools)
        self._open[key].refresh(self._nodes, self.changes)
        return self._open[key]

    def fits(
        self, requests: Resources, constraints: Constraints, pools: tuple[NodePool, ...]
    ) -> Fits:
        """Returns the nodes that such a pod fits on, with their costs."""
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

    def slots(
        self,
        requests: Resources,
        constraints: Constraints,
        pools: tuple[NodePool, ...],
        room: Room,
    ) -> Slots:
        """Returns how many such pods fit on each node, if `room` gives the amounts on a node."""
        names = self.open_nodes(constraints, pools).names
        key = ((tuple(sorted(requests.items())), constraints, bool(pools)), room)
        slots = self._slots.pop(key, None) or Slots(requests)
        slots.refresh(names, self.changes, room)
        if not constraints.only_node:
            self._slots[key] = slots
            while (
                len(self._slots) > 1
                and len(self._slots) * (_ENTRY + len(self._nodes)) > _MAX_PRICES
            ):
                del self._slots[next(iter(self._slots))]
        return slots

    def _clear(self) -> None:
        self._open.clear()
        self._open_entries = 0
        self._fits.clear()
        self._slots.clear()

    def _priced(self) -> int:
        return sum(_ENTRY + len(fits.costs) for fits in self._fits.values())
