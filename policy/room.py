"""Free room per node while one plan is made: what is free now, and what leaving pods will free.

Capacity counts as free only when pods are gone, so trainers are created on `now` alone;
`coming` tells what need not be released again.
"""

from heapq import heapify, heappop, heappush

from policy import amounts
from policy.index import Index, is_surplus
from policy.model import NodePool
from policy.placement import Packing, admits
from policy.snapshot import Constraints, Pod, Resources

_Heap = list[tuple[tuple[int, int], str, int]]


class Room:
    """Mutable scratch of one plan; starts from an index and never writes to it."""

    def __init__(self, index: Index, packing: Packing, pools: tuple[NodePool, ...]) -> None:
        self._index = index
        self._packing = packing
        self._pools = pools
        self.now = {name: index.free(name) for name in index.nodes}
        """Node -> free amounts; negative where more is promised than free."""
        self.coming: dict[str, dict[str, int]] = {}
        """Node -> amounts of pods that are on their way out."""
        self.surplus: dict[str, dict[str, int]] = {}
        """Node -> amounts of surplus trainers that could be reclaimed."""
        self._open: dict[tuple[Constraints, bool], tuple[str, ...]] = {}
        self._slots: dict[tuple[object, ...], tuple[_Heap, frozenset[str]]] = {}
        self._version: dict[str, int] = dict.fromkeys(index.nodes, 0)
        for name in index.nodes:
            for pod in index.bound.get(name, {}).values():
                if pod.deleting:
                    amounts.add(self.coming.setdefault(name, {}), pod.requests)
                elif is_surplus(pod):
                    amounts.add(self.surplus.setdefault(name, {}), pod.requests)

    def open_nodes(self, constraints: Constraints, *, pooled: bool) -> tuple[str, ...]:
        """Names of the nodes that admit such a pod, in order of name; pools bind trainers only."""
        key = (constraints, pooled)
        if key not in self._open:
            pools = self._pools if pooled else ()
            self._open[key] = tuple(
                name
                for name in sorted(self._index.nodes)
                if admits(self._index.nodes[name], constraints, pools) is None
            )
        return self._open[key]

    def take(self, node: str, requests: Resources) -> None:
        """Counts a pod on a node; what is free there may become negative."""
        amounts.subtract(self.now[node], requests)
        self._version[node] += 1

    def give(self, node: str, requests: Resources) -> None:
        """Uncounts a pod."""
        amounts.add(self.now[node], requests)
        self._version[node] += 1
        for heap, _ in self._slots.values():
            heappush(heap, ((0, 0), node, _STALE))

    def leave(self, pod: Pod) -> None:
        """A pod is let go: its room is coming, and no longer to be had by reclaim."""
        if pod.node in self.now:
            amounts.add(self.coming.setdefault(pod.node, {}), pod.requests)
            if is_surplus(pod):
                amounts.subtract(self.surplus[pod.node], pod.requests)

    def slot(self, requests: Resources, constraints: Constraints, closed: frozenset[str]) -> str:
        """The node where a trainer of this shape costs least now, or "" where none has room.

        Amortised O(log nodes) a call: candidates are kept in a heap for each shape, and an
        entry whose node changed since is priced again when it comes up.
        """
        key = (tuple(sorted(requests.items())), constraints, closed)
        if key not in self._slots:
            open_nodes = frozenset(self.open_nodes(constraints, pooled=True)) - closed
            heap = [
                (self._packing.cost(requests, self.now[name]), name, self._version[name])
                for name in open_nodes
                if amounts.within(requests, self.now[name])
            ]
            heapify(heap)
            self._slots[key] = (heap, open_nodes)
        heap, open_nodes = self._slots[key]
        while heap:
            _, name, version = heap[0]
            if version == self._version[name]:
                return name
            heappop(heap)
            if name in open_nodes and amounts.within(requests, self.now[name]):
                cost = self._packing.cost(requests, self.now[name])
                heappush(heap, (cost, name, self._version[name]))
        return ""

    def place(
        self, requests: Resources, constraints: Constraints, *, pooled: bool
    ) -> tuple[str, bool]:
        """Where a pod that outranks surplus goes: (node or "", whether something must leave).

        In order of preference: room that is free, room that is coming, room that surplus
        trainers hold. Among equals the node where it spoils least for trainers.
        """
        best: tuple[int, tuple[int, int], str] | None = None
        for name in self.open_nodes(constraints, pooled=pooled):
            kind = self._kind(name, requests)
            if kind is None or (best is not None and kind > best[0]):
                continue
            cost = self._packing.cost(requests, self.now[name])
            if best is None or (kind, cost, name) < best:
                best = (kind, cost, name)
        return (best[2], best[0] == _KIND_SURPLUS) if best else ("", False)

    def _kind(self, name: str, requests: Resources) -> int | None:
        """0 free now, 1 when leavers are gone, 2 when surplus leaves, None not at all."""
        free = self.now[name]
        if amounts.within(requests, free):
            return 0
        if name not in self.coming and name not in self.surplus:
            return None
        after = dict(free)
        amounts.add(after, self.coming.get(name, {}))
        if amounts.within(requests, after):
            return 1
        amounts.add(after, self.surplus.get(name, {}))
        return _KIND_SURPLUS if amounts.within(requests, after) else None

    def later(self, name: str) -> dict[str, int]:
        """What is free on a node when everything that is leaving is gone."""
        after = dict(self.now[name])
        amounts.add(after, self.coming.get(name, {}))
        return after


_KIND_SURPLUS = 2
_STALE = -1
"""No version of any node: an entry that is priced when it comes up."""
