"""Where a pod can go and where it goes best, on one node at a time.

The plan and the extender both ask here, so that what the plan promises the scheduler also
does. Amounts are counted as kube-scheduler's NodeResourcesFit counts them; a sum over the
cluster decides nothing.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd

from policy import amounts
from policy.model import NodePool
from policy.reasons import Reason
from policy.snapshot import Constraints, Node, Requirement, Resources, Taint, Toleration

_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def admits(node: Node, constraints: Constraints, pools: tuple[NodePool, ...] = ()) -> Reason | None:
    """Why `node` is closed to a pod whatever is free there, or None where it is open.

    Mirrors the filters NodeUnschedulable, NodeAffinity and TaintToleration, plus our pools.
    """
    if not node.ready:
        return Reason.NODE_NOT_READY
    if node.unschedulable:
        return Reason.NODE_UNSCHEDULABLE
    if not all(tolerated(taint, constraints.tolerations) for taint in node.taints):
        return Reason.NODE_TAINTED
    if constraints.terms and not any(_matches(node, term) for term in constraints.terms):
        return Reason.NODE_SELECTOR
    if pools and not any(pool.labels.items() <= node.labels.items() for pool in pools):
        return Reason.NODE_POOL
    return None


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether a pod may be scheduled in spite of `taint` (core/v1 `ToleratesTaint`)."""
    return taint.effect not in _HARD_EFFECTS or any(
        (not t.effect or t.effect == taint.effect)
        and (not t.key or t.key == taint.key)
        and (t.operator == "Exists" or (t.key != "" and t.value == taint.value))
        for t in tolerations
    )


def _matches(node: Node, term: tuple[Requirement, ...]) -> bool:
    return all(_holds(node, requirement) for requirement in term)


def _holds(node: Node, requirement: Requirement) -> bool:
    """One requirement of node affinity; an unknown operator holds nowhere."""
    key, values = requirement.key, requirement.values
    actual = node.name if key == "metadata.name" else node.labels.get(key)
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
        have, bound = int(actual or ""), int(values[0] if values else "")
    except ValueError:
        return False
    return have > bound if operator == "Gt" else have < bound


_ALIKE = 4
_TWELFTHS = 12
"""The least number that 1 to `_ALIKE` all divide."""


_MOST_WORTH = 1000
_MOST_ALIKE = 64
"""Trainers of one shape on a node up to which fillings are exact."""
_MOST_KNOWN = 262_144
"""Fillings that are remembered, some 50 MB; nodes with the same room share them."""

CHEAPEST = (-(2**62), 0)
"""Below the cost of any place."""


class Packing:
    """Knows the shapes of trainers in use and what a placement would spoil for them.

    The value of free room is the most that whole trainers could still use of it, each counted by
    its dominant share. A placement costs what it takes away
    from that value beyond itself, so whole slots stay free: a pod of 4 CPU goes where 9 are
    free and 5 remain, not where 8.5 are.
    """

    _MOST_SHAPES = 4

    def __init__(self, shapes: Iterable[Resources], total: Resources) -> None:
        """Nothing is priced yet.

        Args:
            shapes: In order of weight; beyond the first four different ones none is looked at.
            total: Allocatable of the cluster: it says which resource of a shape is the scarce one.
        """
        distinct: dict[tuple[tuple[str, int], ...], None] = {}
        for shape in shapes:
            needs = tuple(sorted((n, a) for n, a in shape.items() if a > 0 and n != "pods"))
            if needs:
                distinct[needs] = None
        self.shapes = tuple(distinct)[: self._MOST_SHAPES]
        """Those that count, as (resource, amount) pairs by name."""
        self._names = tuple(sorted({name for shape in self.shapes for name, _ in shape}))
        self._units = tuple(
            gcd(*(dict(shape).get(name, 0) for shape in self.shapes)) for name in self._names
        )
        """What free amounts are rounded down to: less than a unit is of no use to any shape."""
        self._vectors = tuple(
            tuple(
                dict(shape).get(name, 0) // unit
                for name, unit in zip(self._names, self._units, strict=True)
            )
            for shape in self.shapes
        )
        shares = [amounts.dominant(dict(shape), total) for shape in self.shapes]
        most = max(shares, default=0.0)
        self.worths = tuple(
            max(1, round(_MOST_WORTH * share / most)) if most else 1 for share in shares
        )
        """What one trainer of each shape counts: its dominant share, the largest being 1 000.

        Rounded, so that a node more in a large cluster leaves all prices as they are.
        """
        self._best = lru_cache(maxsize=_MOST_KNOWN)(self._fill_from)

    def value(self, free: Mapping[str, int]) -> int:
        """The most that whole trainers could use of `free`, as the sum of their worths."""
        return self._value(self._rounded({}, free, 0))

    def _value(self, free: tuple[int, ...]) -> int:
        return self._best(0, free) if self._vectors else 0

    def _fill_from(self, first: int, free: tuple[int, ...]) -> int:
        """The best filling with the shapes from `first` on: one of that shape more, or none.

        Exact while a shape goes in at most `_MOST_ALIKE` times; of small shapes in large rooms
        the number beyond that is taken as given.
        """
        shape, worth = self._vectors[first], self.worths[first]
        most = min(f // s for f, s in zip(free, shape, strict=True) if s)
        if first + 1 == len(self._vectors):
            return most * worth
        given = max(0, most - _MOST_ALIKE)
        if given:
            free = tuple(f - given * s for f, s in zip(free, shape, strict=True))
        best = self._best(first + 1, free)
        if most:
            rest = tuple(f - s for f, s in zip(free, shape, strict=True))
            best = max(best, worth + self._best(first, rest))
        return best + given * worth

    def cost(self, requests: Resources, free: Mapping[str, int]) -> tuple[int, int]:
        """(what the placement spoils, what is left of the CPU); lower is better.

        Pods come in sets of alike ones, so what counts is what each of up to four would spoil
        on average: two of 4 CPU spoil one trainer of 5 on a node of 18, but two on one of 17.
        Counted in twelfths, which keeps averages whole. `requests` must fit into `free`.
        """
        before = self._value(self._rounded(requests, free, 0))
        spoiled = min(
            (before - self._value(self._rounded(requests, free, count))) * _TWELFTHS // count
            for count in range(1, 1 + max(1, min(_ALIKE, amounts.times(requests, free))))
        )
        return spoiled, free.get("cpu", 0) - requests.get("cpu", 0)

    def _rounded(self, requests: Resources, free: Mapping[str, int], count: int) -> tuple[int, ...]:
        """What is left when `count` such pods are placed, as shapes can use it."""
        return tuple(
            max(0, free.get(name, 0) - count * requests.get(name, 0)) // unit
            for name, unit in zip(self._names, self._units, strict=True)
        )


def score(costs: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Node -> 0..10 (extender/v1 MaxExtenderPriority), 10 for the lowest cost.

    Costs are ranked, not scaled: with few distinct costs each keeps a level of its own.
    """
    ranks = {cost: rank for rank, cost in enumerate(sorted(set(costs.values())))}
    worst = max(len(ranks) - 1, 1)
    return {node: 10 - (10 * ranks[cost] + worst - 1) // worst for node, cost in costs.items()}
