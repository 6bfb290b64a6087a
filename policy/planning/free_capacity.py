"""Free capacity per node while one plan is made: free now, and free once leaving pods end.

Capacity counts as free only when pods have ended, so trainers are created on what is free now.
Capacity that leaving pods will free needs no further release. A plan writes to its own copy of
the few nodes it changes; the others are read from the cluster's state.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heappush

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.fits import Cost, Entry
from policy.cluster.horizon import Horizon
from policy.cluster.live_trainers import is_surplus
from policy.cluster.placement import CHEAPEST
from policy.cluster.snapshot import Constraints, Pod, Resources
from policy.document.model import Policy

NOWHERE: frozenset[str] = frozenset()


class When(IntEnum):
    """The time at which capacity is free, in order of preference."""

    NOW = 0
    LATER = 1
    """Once the pods that are being deleted, and due soon, have ended."""
    RECLAIMED = 2
    """Once surplus trainers have been preempted as well."""


_SlotsKey = tuple[When, tuple[tuple[str, int], ...], Constraints, frozenset[str], bool]
_Key = tuple[When, tuple[tuple[str, int], ...], Constraints, frozenset[str], bool]


class FreeCapacity:
    """The free capacity of each node during one plan: a mutable overlay of the cluster's state."""

    def __init__(self, cluster: ClusterState, policy: Policy, now_s: float) -> None:
        """Starts from what is free in the cluster; the policy's node pools limit trainers only."""
        self._cluster = cluster
        self._pools = policy.node_pools
        self._now = _CopyOnWrite(cluster.available)
        self._releasing = _CopyOnWrite(cluster.releasing)
        self._surplus = _CopyOnWrite(cluster.surplus)
        self._versions: dict[str, int] = {}
        self._changes: list[str] = []
        """Nodes in the order in which this plan changed them."""
        self._slots: dict[_SlotsKey, tuple[int, int]] = {}
        """Shape -> (number of slots, length of `_changes` when they were counted)."""
        self._heaps: dict[_Key, _Heap] = {}
        horizon = Horizon.of(now_s, policy.tiers.grace_seconds)
        for pod in cluster.leaving.values():
            if not pod.leaves_within(horizon):
                amounts.subtract(self._releasing.writable(pod.node), pod.requests)
                self._changed(pod.node)

    def free_now(self, node: str) -> Resources:
        """Returns the free capacity of a node now; negative where more is reserved than free."""
        return self._now[node]

    def free_later(self, node: str) -> dict[str, int]:
        """Returns a copy of the free capacity of a node once its leaving pods have ended."""
        free = dict(self._now[node])
        amounts.add(free, self._releasing[node])
        return free

    def releasing(self, node: str) -> Resources:
        """Returns the requests of the pods on a node that leave soon."""
        return self._releasing[node]

    def free_at(self, node: str, when: When) -> Resources:
        """Returns the free capacity of a node at that time."""
        if when is When.NOW:
            return self._now[node]
        free = self.free_later(node)
        if when is When.RECLAIMED:
            amounts.add(free, self._surplus[node])
        return free

    def nodes_with(self, when: When) -> Iterator[str]:
        """Returns the nodes where more is free at that time than before it."""
        amounts_by_node = self._releasing.keys() if when is When.LATER else self._surplus.keys()
        return (name for name in amounts_by_node if name in self._cluster.nodes)

    def open_nodes_with(
        self, when: When, constraints: Constraints, *, pooled: bool
    ) -> Iterable[str]:
        """Returns the nodes that admit such a pod and where more may be free at that time than before it."""
        open_nodes = self.open_nodes(constraints, pooled=pooled)
        return (name for name in self.nodes_with(when) if name in open_nodes)

    def open_nodes(self, constraints: Constraints, *, pooled: bool) -> Collection[str]:
        """Returns the nodes that admit such a pod, in no order; `pooled` applies node pools."""
        return self._cluster.open_nodes(constraints, self._pools if pooled else ())

    def add_reclaimable(self, pod: Pod) -> None:
        """Counts a surplus trainer that the cluster's state does not count as one."""
        if pod.node in self._cluster.nodes:
            amounts.add(self._surplus.writable(pod.node), pod.requests)
            self._changed(pod.node)

    def reserve(self, node: str, requests: Resources) -> None:
        """Reserves capacity for a pod on a node; what is free there may become negative."""
        amounts.subtract(self._now.writable(node), requests)
        self._changed(node)

    def unreserve(self, node: str, requests: Resources) -> None:
        """Releases a pod's reservation."""
        amounts.add(self._now.writable(node), requests)
        self._changed(node)

    def place_each(
        self, requests: Resources, count: int, next_node: Callable[[], str]
    ) -> list[str]:
        """Places equal pods one after the other, to see where they fit; reserves nothing.

        Args:
            requests: Requests of one pod.
            count: Number of pods.
            next_node: Chooses the node of the next pod; "" where it fits on none.

        Returns:
            The nodes, fewer than `count` where not all pods fit.
        """
        nodes: list[str] = []
        while len(nodes) < count and (node := next_node()):
            nodes.append(node)
            if len(nodes) < count:
                self.reserve(node, requests)
        for node in nodes[: count - 1]:
            self.unreserve(node, requests)
        return nodes

    def add_leaving(self, pod: Pod) -> None:
        """Counts a pod as leaving: its capacity is free later, and no longer reclaimable."""
        if pod.node in self._cluster.nodes:
            amounts.add(self._releasing.writable(pod.node), pod.requests)
            if is_surplus(pod):
                amounts.subtract(self._surplus.writable(pod.node), pod.requests)
            self._changed(pod.node)

    def cheapest_node(
        self,
        requests: Resources,
        constraints: Constraints,
        closed: frozenset[str] = NOWHERE,
        *,
        pooled: bool = True,
        when: When = When.NOW,
    ) -> str:
        """Returns the node where a pod of this shape costs least at that time, or "" if it fits nowhere.

        Amortised O(log nodes) a call: candidates are in a heap for each shape, and an entry whose
        node has changed is priced again when it reaches the top. Jobs that avoid different nodes share
        a heap, as its prices are the same for them. O(1) where the constraints name one node.
        """
        if constraints.only_node:
            open_nodes = self.open_nodes(constraints, pooled=pooled)
            fitting = (n for n in open_nodes if amounts.within(requests, self.free_at(n, when)))
            return next((name for name in fitting if name not in closed), "")
        key = (when, tuple(sorted(requests.items())), constraints.shared, closed, pooled)
        heap = self._heaps.get(key)
        if heap is None:
            heap = self._heaps[key] = self._heap(key, requests)
        heap.catch_up(self._changes)
        return heap.first(constraints.avoided)

    def slots(
        self,
        requests: Resources,
        constraints: Constraints,
        closed: frozenset[str] = NOWHERE,
        *,
        pooled: bool,
        when: When = When.RECLAIMED,
    ) -> int:
        """Returns how many such pods fit, one after the other, on the free capacity at that time.

        `when` is LATER, or RECLAIMED for the nodes that `choose_node` finds. Amortised O(1) for a shape
        while the plan changes nothing, otherwise O(nodes that it changed).
        """
        key = (when, tuple(sorted(requests.items())), constraints, closed, pooled)
        count, counted = self._slots.get(key, (0, -1))
        if counted != len(self._changes):
            pools = self._pools if pooled else ()
            open_nodes = self.open_nodes(constraints, pooled=pooled)
            surplus = when is not When.RECLAIMED
            slots = self._cluster.slots(requests, constraints.shared, pools, surplus=surplus)
            count = slots.total_with(
                self._versions.keys() | closed | set(constraints.avoided),
                lambda name: (
                    self.free_at(name, when) if name in open_nodes and name not in closed else None
                ),
            )
            self._slots[key] = count, len(self._changes)
        return count

    def choose_node(
        self,
        requests: Resources,
        constraints: Constraints,
        closed: frozenset[str] = NOWHERE,
        *,
        pooled: bool,
    ) -> tuple[str, bool]:
        """Returns the node for a pod that outranks surplus: (node or "", whether it must preempt there).

        In order of preference: capacity that is free, that leaving pods will free, and that
        surplus trainers hold. Among equals the node where the pod fragments capacity least.
        """
        for when in When:
            node = self.cheapest_node(requests, constraints, closed, pooled=pooled, when=when)
            if node:
                return node, when is When.RECLAIMED
        return "", False

    def _heap(self, key: _Key, requests: Resources) -> "_Heap":
        when, _, constraints, closed, pooled = key
        open_nodes = self.open_nodes(constraints, pooled=pooled)
        packing = self._cluster.packing

        def price(node: str) -> Cost | None:
            if node in closed or node not in open_nodes:
                return None
            if not amounts.within(requests, self.free_at(node, when)):
                return None
            return packing.cost(requests, self._now[node])

        if when is When.NOW:
            pools = self._pools if pooled else ()
            entries = self._cluster.fits(requests, constraints, pools).heap()
            if closed:
                entries = [entry for entry in entries if entry[1] not in closed]
                heapify(entries)
            return _Heap(entries, price, self._version_of)
        priced = ((price(node), node) for node in self.nodes_with(when))
        entries = [
            (cost, node, self._version_of(node)) for cost, node in priced if cost is not None
        ]
        heapify(entries)
        return _Heap(entries, price, self._version_of, len(self._changes))

    def _version_of(self, node: str) -> int:
        """Returns the version of a node; negative if this plan changed it, so that versions differ."""
        own_version = self._versions.get(node)
        return self._cluster.versions.get(node, 0) if own_version is None else own_version

    def _changed(self, node: str) -> None:
        """Reprices a node: its cost may rise or fall, as what remains may fit a trainer exactly."""
        self._changes.append(node)
        self._versions[node] = -len(self._changes)


class _Heap:
    """A priority queue of nodes for pods of one shape, the cheapest first."""

    def __init__(
        self,
        entries: list[Entry],
        price: Callable[[str], Cost | None],
        version_of: Callable[[str], int],
        position: int = 0,
    ) -> None:
        self._entries = entries
        self._price = price
        self._version_of = version_of
        self._position = position

    def catch_up(self, changes: Sequence[str]) -> None:
        """Queues the nodes that changed since the last call before all others, to be priced again."""
        if self._position < len(changes):
            for node in dict.fromkeys(changes[self._position :]):
                heappush(self._entries, (CHEAPEST, node, _UNPRICED))
            self._position = len(changes)

    def first(self, avoided: Collection[str] = ()) -> str:
        """Returns the node with the lowest cost that is not avoided; "" if there is none."""
        passed: dict[str, Entry] = {}
        node = self._first()
        while node in avoided:
            passed[node] = heappop(self._entries)  # again for the same node: an equal entry
            node = self._first()
        for entry in passed.values():
            heappush(self._entries, entry)
        return node

    def _first(self) -> str:
        entries = self._entries
        while entries:
            _, node, version = entries[0]
            newest = self._version_of(node)
            if version == newest:
                return node
            heappop(entries)
            if newest <= _UNPRICED and (cost := self._price(node)) is not None:
                heappush(entries, (cost, node, newest))
        return ""


class _CopyOnWrite:
    """Amounts per node: those of the cluster's state, or a copy where the plan changed them."""

    def __init__(self, base: Mapping[str, Resources]) -> None:
        self._base = base
        self._own: dict[str, dict[str, int]] = {}

    def __getitem__(self, node: str) -> Resources:
        amounts_copy = self._own.get(node)
        return self._base.get(node, _NOTHING) if amounts_copy is None else amounts_copy

    def writable(self, node: str) -> dict[str, int]:
        """Returns the plan's own copy, for the caller to change."""
        if node not in self._own:
            self._own[node] = dict(self._base.get(node, _NOTHING))
        return self._own[node]

    def keys(self) -> Iterable[str]:
        """Returns the nodes that have amounts."""
        return self._base.keys() | self._own.keys()


_NOTHING: Resources = {}
_UNPRICED = 0
"""Lies between the versions of the cluster's state (positive) and those of plans (negative)."""
