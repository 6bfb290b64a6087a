"""Free room per node while one plan is made: what is free now, and what leaving pods will free.

Capacity counts as free only when pods are gone, so trainers are created on what is free now;
what is coming tells what need not be released again. A plan writes to its own copy of the few
nodes it touches; all the others are read from the index.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from heapq import heapify, heappop, heappush

from policy import amounts
from policy.crew import is_surplus
from policy.fits import Cost, Entry
from policy.index import Index
from policy.model import NodePool
from policy.placement import CHEAPEST
from policy.snapshot import Constraints, Pod, Resources

NOWHERE: frozenset[str] = frozenset()


class When(IntEnum):
    """When room is there, the sooner the better."""

    NOW = 0
    LATER = 1
    """Once the pods that are on their way out are gone."""
    RECLAIMED = 2
    """Once surplus trainers have gone as well."""


_Key = tuple[When, tuple[tuple[str, int], ...], Constraints, frozenset[str], bool]


class Room:
    """Mutable scratch of one plan; starts from an index and never writes to it."""

    def __init__(self, index: Index, pools: tuple[NodePool, ...]) -> None:
        self._index = index
        self._pools = pools
        self._now = _Copies(index.available)
        self._coming = _Copies(index.coming)
        self._surplus = _Copies(index.surplus)
        self._stamps: dict[str, int] = {}
        self._stamp = 0
        self._heaps: dict[_Key, _Heap] = {}

    def now(self, node: str) -> Resources:
        """What is free on a node; negative where more is promised than free."""
        return self._now[node]

    def later(self, node: str) -> dict[str, int]:
        """What is free there when everything that is leaving is gone."""
        after = dict(self._now[node])
        amounts.add(after, self._coming[node])
        return after

    def after(self, node: str, when: When) -> Resources:
        """What is free there then."""
        if when is When.NOW:
            return self._now[node]
        after = self.later(node)
        if when is When.RECLAIMED:
            amounts.add(after, self._surplus[node])
        return after

    def nodes_with(self, when: When) -> Iterator[str]:
        """Nodes where more is free then than before."""
        found = self._coming.keys() if when is When.LATER else self._surplus.keys()
        return (name for name in found if name in self._index.nodes)

    def open_nodes(self, constraints: Constraints, *, pooled: bool) -> Collection[str]:
        """Names of the nodes that admit such a pod, in no order; pools bind trainers only."""
        return self._index.open_nodes(constraints, self._pools if pooled else ())

    def reclaimable(self, pod: Pod) -> None:
        """Counts a surplus trainer that the index does not know as one."""
        if pod.node in self._index.nodes:
            amounts.add(self._surplus.own(pod.node), pod.requests)
            self._changed(pod.node)

    def take(self, node: str, requests: Resources) -> None:
        """Counts a pod on a node; what is free there may become negative."""
        amounts.subtract(self._now.own(node), requests)
        self._changed(node)

    def give(self, node: str, requests: Resources) -> None:
        """Uncounts a pod."""
        amounts.add(self._now.own(node), requests)
        self._changed(node)

    def leave(self, pod: Pod) -> None:
        """A pod is let go: its room is coming, and no longer to be had by reclaim."""
        if pod.node in self._index.nodes:
            amounts.add(self._coming.own(pod.node), pod.requests)
            if is_surplus(pod):
                amounts.subtract(self._surplus.own(pod.node), pod.requests)
            self._changed(pod.node)

    def slot(
        self,
        requests: Resources,
        constraints: Constraints,
        closed: frozenset[str] = NOWHERE,
        *,
        pooled: bool = True,
        when: When = When.NOW,
    ) -> str:
        """The node where a pod of this shape costs least then, or "" where none has room.

        Amortised O(log nodes) a call: candidates are kept in a heap for each shape, and an
        entry whose node changed since is priced again when it comes up.
        """
        key = (when, tuple(sorted(requests.items())), constraints, closed, pooled)
        heap = self._heaps.get(key)
        if heap is None:
            heap = self._heaps[key] = self._heap(key, requests)
        return heap.first()

    def place(
        self, requests: Resources, constraints: Constraints, *, pooled: bool
    ) -> tuple[str, bool]:
        """Where a pod that outranks surplus goes: (node or "", whether something must leave).

        In order of preference: room that is free, room that is coming, room that surplus
        trainers hold. Among equals the node where it spoils least for trainers.
        """
        for when in When:
            node = self.slot(requests, constraints, pooled=pooled, when=when)
            if node:
                return node, when is When.RECLAIMED
        return "", False

    def _heap(self, key: _Key, requests: Resources) -> "_Heap":
        when, _, constraints, closed, pooled = key
        open_nodes = self.open_nodes(constraints, pooled=pooled)
        packing = self._index.packing

        def price(node: str) -> Cost | None:
            if node in closed or node not in open_nodes:
                return None
            if not amounts.within(requests, self.after(node, when)):
                return None
            return packing.cost(requests, self._now[node])

        if when is When.NOW:
            pools = self._pools if pooled else ()
            known = self._index.fits(requests, constraints, pools).heap()
            if closed:
                known = [entry for entry in known if entry[1] not in closed]
                heapify(known)
            heap = _Heap(known, price, self._stamp_of)
            for node in self._stamps:
                heap.offer(node)
            return heap
        priced = ((price(node), node) for node in self.nodes_with(when))
        entries = [(cost, node, self._stamp_of(node)) for cost, node in priced if cost is not None]
        heapify(entries)
        return _Heap(entries, price, self._stamp_of)

    def _stamp_of(self, node: str) -> int:
        """Negative for nodes that this plan changed: no stamp of the index equals one."""
        own = self._stamps.get(node)
        return self._index.stamps.get(node, 0) if own is None else own

    def _changed(self, node: str) -> None:
        """A place may become dearer or cheaper: what is left may just fit."""
        self._stamp -= 1
        self._stamps[node] = self._stamp
        for heap in self._heaps.values():
            heap.offer(node)


class _Heap:
    """Places of one shape, the cheapest first."""

    def __init__(
        self,
        entries: list[Entry],
        price: Callable[[str], Cost | None],
        stamp_of: Callable[[str], int],
    ) -> None:
        self._entries = entries
        self._price = price
        self._stamp_of = stamp_of

    def offer(self, node: str) -> None:
        """Looks at a node again, before any other."""
        heappush(self._entries, (CHEAPEST, node, _UNPRICED))

    def first(self) -> str:
        """The node with the lowest cost; "" where none is left."""
        entries = self._entries
        while entries:
            _, node, stamp = entries[0]
            newest = self._stamp_of(node)
            if stamp == newest:
                return node
            heappop(entries)
            if newest <= _UNPRICED and (cost := self._price(node)) is not None:
                heappush(entries, (cost, node, newest))
        return ""


class _Copies:
    """Amounts per node: the index's own, or a copy where a plan has changed them."""

    def __init__(self, base: Mapping[str, Resources]) -> None:
        self._base = base
        self._own: dict[str, dict[str, int]] = {}

    def __getitem__(self, node: str) -> Resources:
        own = self._own.get(node)
        return self._base.get(node, _NOTHING) if own is None else own

    def own(self, node: str) -> dict[str, int]:
        """The copy, to be changed."""
        if node not in self._own:
            self._own[node] = dict(self._base.get(node, _NOTHING))
        return self._own[node]

    def keys(self) -> Iterable[str]:
        """Nodes with an entry."""
        return self._base.keys() | self._own.keys()


_NOTHING: Resources = {}
_UNPRICED = 0
"""Between the stamps of the index and those of plans."""
