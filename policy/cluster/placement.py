"""Whether a node admits a pod, and the cost of placing the pod there; one node at a time.

The plan and the extender both use this module, so that kube-scheduler places trainers where the
plan reserved capacity. Amounts are counted as kube-scheduler's NodeResourcesFit counts them;
cluster-wide sums play no part.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from math import gcd

from policy.cluster import amounts
from policy.cluster.filling import Filling
from policy.cluster.snapshot import Constraints, Node, Requirement, Resources, Taint, Toleration
from policy.decisions import Figures
from policy.document.model import NodePool
from policy.names import NODE_NAME
from policy.reasons import Reason

_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def admits(node: Node, constraints: Constraints, pools: tuple[NodePool, ...] = ()) -> Reason | None:
    """Returns why `node` does not admit such a pod, or None if it does; free capacity plays no part.

    Mirrors the filters NodeUnschedulable, NodeAffinity and TaintToleration, plus EDL's node pools.
    """
    if not node.ready:
        return Reason.NODE_NOT_READY
    if node.unschedulable:
        return Reason.NODE_UNSCHEDULABLE
    if not all(tolerated(taint, constraints.tolerations) for taint in node.taints):
        return Reason.NODE_TAINTED
    if constraints.terms and not any(_matches(node, term) for term in constraints.terms):
        return Reason.NODE_SELECTOR
    if node.name in constraints.avoided:
        return Reason.NODE_AVOIDED
    return None if in_pools(node, pools) else Reason.NODE_POOL


def in_pools(node: Node, pools: tuple[NodePool, ...]) -> bool:
    """Returns whether `node` is in one of the pools; True if there are no pools."""
    return not pools or any(pool.labels.items() <= node.labels.items() for pool in pools)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Returns whether a pod may be scheduled despite `taint` (core/v1 `ToleratesTaint`)."""
    return taint.effect not in _HARD_EFFECTS or any(
        (not t.effect or t.effect == taint.effect)
        and (not t.key or t.key == taint.key)
        and (t.operator == "Exists" or (t.key != "" and _tolerates_value(t, taint)))
        for t in tolerations
    )


def _tolerates_value(toleration: Toleration, taint: Taint) -> bool:
    if toleration.operator in ("Gt", "Lt"):
        return _compares(toleration.operator, taint.value, (toleration.value,))
    return toleration.value == taint.value


def _matches(node: Node, term: tuple[Requirement, ...]) -> bool:
    return all(_holds(node, requirement) for requirement in term)


def _holds(node: Node, requirement: Requirement) -> bool:
    """Returns whether a node meets a node affinity requirement; False if the operator is unknown."""
    key, values = requirement.key, requirement.values
    actual = node.name if key == NODE_NAME else node.labels.get(key)
    match requirement.operator:
        case "In":
            return actual in values
        case "NotIn":
            return actual not in values
        case "Exists":
            return actual is not None
        case "DoesNotExist":
            return actual is None
        case "Gt" | "Lt":
            return _compares(requirement.operator, actual, values)
        case _:
            return False


def _compares(operator: str, actual: str | None, values: tuple[str, ...]) -> bool:
    try:
        actual_number, bound = int(actual or ""), int(values[0] if values else "")
    except ValueError:
        return False
    return actual_number > bound if operator == "Gt" else actual_number < bound


_MAX_SET = 4
_TWELFTHS = 12
"""The least common multiple of 1 to `_MAX_SET`."""
_MAX_WORTH = 1000
_CACHE_SIZE = 262_144
"""Number of cached fillings, about 50 MB; nodes with the same free amounts share an entry."""
_COSTS = 8192
"""Number of cached costs, about 8 MB: among thousands of nodes many are alike and have the same pods."""
_Amounts = frozenset[tuple[str, int]]

CHEAPEST = (-(2**62), 0)
"""A cost that is lower than the cost of any placement."""


class Packing:
    """Computes the fragmentation cost of placements, given the trainer shapes in use.

    A trainer's worth is its dominant share. The value of free capacity is the largest total worth of
    whole trainers that fit into it. The cost of a placement is the value that it destroys, so whole
    trainer slots stay free: for trainers of 5 CPU, a pod of 4 CPU goes to a node with 9 free CPU, where
    5 remain, and not to a node with 8.5.
    """

    _MAX_SHAPES = 4

    def __init__(self, shapes: Iterable[Resources], total: Resources) -> None:
        """Prepares the shapes.

        Args:
            shapes: Requests of one trainer of each shape, the most important first; only the first
                four different ones are used.
            total: Allocatable amounts of the cluster, which determine a shape's dominant resource.
        """
        distinct: dict[tuple[tuple[str, int], ...], None] = {}
        for shape in shapes:
            needs = tuple(sorted((n, a) for n, a in shape.items() if a > 0 and n != "pods"))
            if needs:
                distinct[needs] = None
        self.shapes = tuple(distinct)[: self._MAX_SHAPES]
        """The shapes in use, as (resource, amount) pairs sorted by name."""
        self._names = tuple(sorted({name for shape in self.shapes for name, _ in shape}))
        self._divisors = tuple(
            gcd(*(dict(shape).get(name, 0) for shape in self.shapes)) for name in self._names
        )
        """Free amounts are rounded down to multiples of these: no shape can use the remainder."""
        vectors = tuple(
            tuple(
                dict(shape).get(name, 0) // divisor
                for name, divisor in zip(self._names, self._divisors, strict=True)
            )
            for shape in self.shapes
        )
        shares = [amounts.dominant(dict(shape), total) for shape in self.shapes]
        most = max(shares, default=0.0)
        self.worths = tuple(
            max(1, round(_MAX_WORTH * share / most)) if most else 1 for share in shares
        )
        """Worth of one trainer of each shape: its dominant share, scaled so that the largest is 1 000.

        Worths are rounded, so that adding a node to a large cluster leaves all costs unchanged.
        """
        self._value = lru_cache(maxsize=_CACHE_SIZE)(Filling(vectors, self.worths).best)
        self._cost = lru_cache(maxsize=_COSTS)(self._placement_cost)

    def value(self, free: Mapping[str, int]) -> int:
        """Returns the largest total worth of whole trainers that fit into `free`, or slightly less."""
        return self._value(self._rounded({}, free, 0))

    def cost(self, requests: Resources, free: Mapping[str, int]) -> tuple[int, int]:
        """Returns (fragmentation cost, remaining free CPU) of a placement; lower is better.

        Pods arrive in sets of equal pods, so the cost is the lowest average over one to four such pods.
        For example, with trainers of 5 CPU, two pods of 4 CPU cost one trainer on a node with 18 free
        CPU, and two trainers on a node with 17. Costs are in twelfths, so that averages are whole
        numbers. `requests` must fit into `free`.
        """
        return self._cost(frozenset(requests.items()), frozenset(free.items()))

    def _placement_cost(self, requested: _Amounts, available: _Amounts) -> tuple[int, int]:
        requests, free = dict(requested), dict(available)
        before = self._value(self._rounded(requests, free, 0))
        fragmented = min(
            max(0, before - self._value(self._rounded(requests, free, count))) * _TWELFTHS // count
            for count in range(1, 1 + max(1, min(_MAX_SET, amounts.times(requests, free))))
        )
        return fragmented, free.get("cpu", 0) - requests.get("cpu", 0)

    def _rounded(self, requests: Resources, free: Mapping[str, int], count: int) -> tuple[int, ...]:
        """Returns what remains free after placing `count` such pods, in multiples of `_divisors`."""
        return tuple(
            max(0, free.get(name, 0) - count * requests.get(name, 0)) // divisor
            for name, divisor in zip(self._names, self._divisors, strict=True)
        )


def score(costs: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Returns node -> score from 0 to 10 (extender/v1 MaxExtenderPriority), 10 for the lowest cost.

    Scores come from the rank of a cost, not its size: few distinct costs then all get different scores.
    """
    ranks = {cost: rank for rank, cost in enumerate(sorted(set(costs.values())))}
    worst = max(len(ranks) - 1, 1)
    return {node: 10 - (10 * ranks[cost] + worst - 1) // worst for node, cost in costs.items()}


def closest_fit(
    requests: Resources, nodes: Collection[str], available: Mapping[str, Resources]
) -> Figures:
    """Returns the number of nodes, and the node whose free capacity is closest to fitting a pod.

    These are figures for the record of a decision. For each node, the scarcest resource is the one with
    the smallest ratio of free amount to request; the closest node has the largest such ratio. O(nodes).

    Args:
        requests: Requests of the pod.
        nodes: Nodes that admit the pod.
        available: Node -> its free amounts, as the scheduler counts them; may be negative.
    """
    if not nodes:
        return {"nodes": 0}
    requested = [(name, amount) for name, amount in sorted(requests.items()) if amount > 0]
    _, closest = max(
        (min((available[n].get(r, 0) / amount for r, amount in requested), default=0.0), n)
        for n in nodes
    )
    free = {name: max(0, available[closest].get(name, 0)) for name, _ in requested}
    return {"nodes": len(nodes), "nearest": closest, "free": free}
