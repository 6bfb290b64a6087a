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


class Packing:
    """Knows the shapes of trainers in use and what a placement would spoil for them.

    The value of free room is the most CPU (or, for shapes without CPU, the most of their
    first resource) that whole trainers could still fill. A placement costs what it takes away
    from that value beyond itself, so whole slots stay free: a pod of 4 CPU goes where 9 are
    free and 5 remain, not where 8.5 are.
    """

    _MOST_SHAPES = 4
    _MOST_TRIES = 64
    """Fillings of one node that are compared, so that small shapes on large nodes stay cheap."""

    def __init__(self, shapes: Iterable[Resources]) -> None:
        """`shapes` in order of weight: beyond the first four different ones none is looked at."""
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
        self._worths = tuple(
            dict(shape).get("cpu", 0) or next(amount for _, amount in shape)
            for shape in self.shapes
        )
        """What one trainer of each shape counts: its CPU, or its first resource without any."""
        self._tries = int(self._MOST_TRIES ** (1 / max(1, len(self._vectors) - 1)))
        self._value = lru_cache(maxsize=65_536)(self._fill)

    def value(self, free: Mapping[str, int]) -> int:
        """The most that whole trainers could use of `free`, in units of the first resource."""
        return self._value(self._rounded({}, free, 0))

    def _fill(self, free: tuple[int, ...]) -> int:
        """How often the first goes in, each time with the rest behind it.

        Exact while no shape goes into a node more often than is tried (64 times with two
        shapes, 8 with three, 4 with four); beyond that the larger numbers are tried.
        """
        return self._fill_from(0, free)

    def _fill_from(self, first: int, free: tuple[int, ...]) -> int:
        if not self._vectors:
            return 0
        shape, worth = self._vectors[first], self._worths[first]
        most = min(f // s for f, s in zip(free, shape, strict=True) if s)
        if first + 1 == len(self._vectors):
            return most * worth
        best = 0
        for count in range(most, max(-1, most - self._tries), -1):
            rest = tuple(f - count * s for f, s in zip(free, shape, strict=True))
            best = max(best, count * worth + self._fill_from(first + 1, rest))
        return best

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
