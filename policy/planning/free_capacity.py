"""Free capacity per node while one plan is made: free now, and free once leaving pods have ended.

A pod's capacity is free only when the pod has ended, so the plan creates trainers on capacity that is free
now. Where leaving pods will free enough, it releases no others. A plan changes its own copy of the amounts
on a few nodes; the amounts on all other nodes are read from the cluster's state.
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
    """Once the pods that are being deleted and due soon have ended."""
    RECLAIMED = 2
    """Once surplus trainers have been preempted as well."""


_SlotsKey = tuple[When, tuple[tuple[str, int], ...], Constraints, frozenset[str], bool]
_Key = tuple[When, tuple[tuple[str, int], ...], Constraints, frozenset[str], bool]


class FreeCapacity:
    """The free capacity of each node during one plan: a mutable overlay of the cluster's state."""

    def __init__(self, cluster: ClusterState, policy: Policy, now_s: float) -> None:
        """Starts from the free capacity in the cluster; the policy's node pools limit only trainers."""
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
        """Returns a node's free capacity now; an amount is negative if more is reserved than is free."""
        return self._now[node]

    def free_later(self, node: str) -> dict[str, int]:
        """Returns a copy of a node's free capacity once its leaving pods have ended."""
        free = dict(self._now[node])
        amounts.add(free, self._releasing[node])
        return free

    def releasing(self, node: str) -> Resources:
        """Returns the requests of the pods on a node that leave soon."""
        return self._releasing[node]

    def free_at(self, node: str, when: When) -> Resources:
        """Returns a node's free capacity at the time `when`."""
        if when is When.NOW:
            return self._now[node]
        free = self.free_later(node)
        if when is When.RECLAIMED:
            amounts.add(free, self._surplus[node])
        return free

    def nodes_with(self, when: When) -> Iterator[str]:
        """Returns the nodes where more is free at the time `when` than at the time before it."""
        amounts_by_node = self._releasing.keys() if when is When.LATER else self._surplus.keys()
        return (name for name in amounts_by_node if name in self._cluster.nodes)

    def open_nodes_with(
        self, when: When, constraints: Constraints, *, pooled: bool
    ) -> Iterable[str]:
        """Returns the nodes that admit such a pod and where more may be free at `when` than before."""
        open_nodes = self.open_nodes(constraints, pooled=pooled)
        return (name for name in self.nodes_with(when) if name in open_nodes)

    def open_nodes(self, constraints: Constraints, *, pooled: bool) -> Collection[str]:
        """Returns the nodes that admit such a pod, unordered; `pooled` applies the node pools."""
        return self._cluster.open_nodes(constraints, self._pools if pooled else ())

    def add_reclaimable(self, pod: Pod) -> None:
        """Counts a trainer as surplus that the cluster's state does not count as surplus."""
        if pod.node in self._cluster.nodes:
            amounts.add(self._surplus.writable(pod.node), pod.requests)
            self._changed(pod.node)

    def reserve(self, node: str, requests: Resources) -> None:
        """Reserves capacity for a pod on a node; the free capacity there may become negative."""
        amounts.subtract(self._now.writable(node), requests)
        self._changed(node)

    def unreserve(self, node: str, requests: Resources) -> None:
        """Releases a pod's reservation."""
        amounts.add(self._now.writable(node), requests)
        self._changed(node)

    def place_each(
        self, requests: Resources, count: int, next_node: Callable[[], str]
    ) -> list[str]:
        """Finds nodes for equal pods, placed one after the other; no reservation remains.

        Args:
            requests: Requests of one pod.
            count: Number of pods.
            next_node: Returns the node of the next pod; "" if it fits on none.

        Returns:
            The nodes; fewer than `count` if not all pods fit.
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
        """Counts a pod as leaving: its capacity is then free later and no longer reclaimable."""
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
        """Returns the node where a pod of this shape costs least at `when`; "" if it fits nowhere.

        A call takes amortised O(log nodes): each shape has a heap of candidates, and an entry whose node
        has changed is priced again when it reaches the top. Jobs that avoid different nodes share a heap,
        because its prices are the same for all of them. A call takes O(1) if the constraints name one
        node.
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
        """Returns how many such pods fit on all nodes with the free capacity at `when`.

        `when` is LATER, or RECLAIMED for the nodes that `choose_node` finds. A call for a known shape
        takes amortised O(1) if the plan has changed nothing since the last one, and otherwise O(number
        of changed nodes).
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

        Free capacity is preferred, then capacity that leaving pods will free, then capacity that
        surplus trainers use. Among equal nodes, the one where the pod fragments capacity least is taken.
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
        """Returns a node's version; negative if this plan changed the node, unlike the cluster's versions."""
        own_version = self._versions.get(node)
        return self._cluster.versions.get(node, 0) if own_version is None else own_version

    def _changed(self, node: str) -> None:
        """Marks a node to be priced again: its cost may rise or fall with every change."""
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
        """Queues the nodes changed since the last call ahead of all others, so that they are priced again."""
        if self._position < len(changes):
            for node in dict.fromkeys(changes[self._position :]):
                heappush(self._entries, (CHEAPEST, node, _UNPRICED))
            self._position = len(changes)

    def first(self, avoided: Collection[str] = ()) -> str:
        """Returns the node with the lowest cost that is not avoided; "" if there is none."""
        passed: dict[str, Entry] = {}
        node = self._first()
        while node in avoided:
            passed[node] = heappop(self._entries)  # a node may come again: the entries are equal
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
    """Amounts per node: those in the cluster's state, or the plan's copy if the plan changed them."""

    def __init__(self, base: Mapping[str, Resources]) -> None:
        self._base = base
        self._own: dict[str, dict[str, int]] = {}

    def __getitem__(self, node: str) -> Resources:
        amounts_copy = self._own.get(node)
        return self._base.get(node, _NOTHING) if amounts_copy is None else amounts_copy

    def writable(self, node: str) -> dict[str, int]:
        """Returns the plan's own copy of a node's amounts, which the caller may change."""
        if node not in self._own:
            self._own[node] = dict(self._base.get(node, _NOTHING))
        return self._own[node]

    def keys(self) -> Iterable[str]:
        """Returns the nodes that have amounts."""
        return self._base.keys() | self._own.keys()


_NOTHING: Resources = {}
_UNPRICED = 0
"""Version of an entry without a valid price: versions in the cluster's state are positive, in plans negative."""
