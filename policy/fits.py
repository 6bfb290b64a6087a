"""Where a shape of pod fits and what each place costs, kept up to date node by node.

Extender and plan ask the same question of the same records: which nodes admit such a pod, have
room for it now, and how much that spoils for trainers (`placement.Packing`). The first question
about a shape prices every node; later ones price what changed since.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappush

from policy import amounts
from policy.model import NodePool
from policy.placement import Packing, admits
from policy.snapshot import Constraints, Node, Resources

Cost = tuple[int, int]
"""What a placement spoils, and what it leaves of the CPU; lower is better."""
Entry = tuple[Cost, str, int]
"""Cost, node, and the node's stamp when it was priced; with an older stamp it is void."""

_MOST_PRICES = 500_000
"""Prices kept in all; beyond it the shapes that were asked about longest ago are dropped."""


class Touched:
    """Which nodes changed, in order, for readers that each remember how far they have read."""

    def __init__(self) -> None:
        self.stamps: dict[str, int] = {}
        """Node -> number of its newest change; a node that is gone has none."""
        self.end = 0
        self._names: list[str] = []
        self._start = 0

    def add(self, node: str, *, exists: bool) -> None:
        """A node changed, came or went."""
        self._names.append(node)
        self.end += 1
        if exists:
            self.stamps[node] = self.end
        else:
            self.stamps.pop(node, None)
        if len(self._names) > 1000 + 2 * len(self.stamps):
            kept = len(self._names) // 2
            self._start = self.end - kept
            self._names = self._names[-kept:]

    def since(self, seen: int) -> Iterable[str] | None:
        """The nodes that changed after `seen`, each once; None where that is forgotten."""
        if seen < self._start:
            return None
        return dict.fromkeys(self._names[seen - self._start :])


class OpenNodes:
    """The nodes that admit pods of some constraints, whatever is free there."""

    def __init__(self, constraints: Constraints, pools: tuple[NodePool, ...]) -> None:
        self._constraints = constraints
        self._pools = pools
        self._seen = -1
        self.names: set[str] = set()

    def refresh(self, nodes: Mapping[str, Node], touched: Touched) -> None:
        """Looks again at what changed."""
        names = touched.since(self._seen)
        if names is None:
            self.names.clear()
            names = nodes
        for name in names:
            node = nodes.get(name)
            if node is not None and admits(node, self._constraints, self._pools) is None:
                self.names.add(name)
            else:
                self.names.discard(name)
        self._seen = touched.end


class Fits:
    """The prices of one shape on the nodes of an `OpenNodes`."""

    def __init__(self, requests: Resources, open_nodes: OpenNodes) -> None:
        self._requests = requests
        self._open = open_nodes
        self._seen = -1
        self.costs: dict[str, Cost] = {}
        """Open nodes with room now."""
        self._heap: list[Entry] = []

    def refresh(
        self, available: Mapping[str, Resources], touched: Touched, packing: Packing
    ) -> None:
        """Prices again what changed; `OpenNodes` must be fresh."""
        names = touched.since(self._seen)
        self._seen = touched.end
        if names is None:
            self.costs.clear()
            for name in self._open.names:
                self._price(name, available, packing)
            self._rebuild(touched)
            return
        for name in names:
            self._price(name, available, packing)
            if name in self.costs:
                heappush(self._heap, (self.costs[name], name, touched.stamps[name]))
        if len(self._heap) > 100 + 2 * len(self.costs):
            self._rebuild(touched)

    def _price(self, name: str, available: Mapping[str, Resources], packing: Packing) -> None:
        if name in self._open.names and amounts.within(self._requests, available[name]):
            self.costs[name] = packing.cost(self._requests, available[name])
        else:
            self.costs.pop(name, None)

    def _rebuild(self, touched: Touched) -> None:
        self._heap = [(cost, name, touched.stamps[name]) for name, cost in self.costs.items()]
        heapify(self._heap)

    def heap(self) -> list[Entry]:
        """A heap of the caller's own, the cheapest place first; some entries may be void."""
        return self._heap.copy()


_Key = tuple[tuple[tuple[str, int], ...], Constraints, bool]


class Prices:
    """All shapes that were asked about. One of each `policy.index.Index`."""

    def __init__(self, nodes: Mapping[str, Node], available: Mapping[str, Resources]) -> None:
        """Reads `nodes` and `available` (node -> what is free), and never writes to them."""
        self._nodes = nodes
        self._available = available
        self.touched = Touched()
        self._packing = Packing((), {})
        self._pools: tuple[NodePool, ...] = ()
        self._open: dict[tuple[Constraints, bool], OpenNodes] = {}
        self._fits: dict[_Key, Fits] = {}

    def pack_by(self, packing: Packing) -> None:
        """Prices from now on by the shapes in use."""
        if packing is not self._packing:
            self._packing = packing
            self._fits.clear()

    def open_nodes(self, constraints: Constraints, pools: tuple[NodePool, ...]) -> OpenNodes:
        """The nodes that admit such a pod."""
        if pools and pools != self._pools:
            self._pools = pools
            self._open.clear()
            self._fits.clear()
        key = (constraints, bool(pools))
        if key not in self._open:
            if len(self._open) * len(self._nodes) >= _MOST_PRICES:
                self._open.clear()
                self._fits.clear()
            self._open[key] = OpenNodes(constraints, pools)
        self._open[key].refresh(self._nodes, self.touched)
        return self._open[key]

    def fits(
        self, requests: Resources, constraints: Constraints, pools: tuple[NodePool, ...]
    ) -> Fits:
        """The places of such a pod."""
        open_nodes = self.open_nodes(constraints, pools)
        key = (tuple(sorted(requests.items())), constraints, bool(pools))
        fits = self._fits.pop(key, None) or Fits(requests, open_nodes)
        fits.refresh(self._available, self.touched, self._packing)
        self._fits[key] = fits
        while len(self._fits) > 1 and self._priced() > _MOST_PRICES:
            del self._fits[next(iter(self._fits))]
        return fits

    def _priced(self) -> int:
        return sum(len(fits.costs) for fits in self._fits.values())
