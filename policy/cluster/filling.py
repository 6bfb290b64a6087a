"""The largest total worth of pods of a few shapes that fit into one node's free capacity.

A plan solves this knapsack problem for every node. Large pods can fill a node in at most a few thousand
ways. These fillings are listed once for all nodes of about the same size, by descending worth, so the
first one that fits is the best. Small pods can fill a node in too many ways to list. For these, branch and
bound tries the densest shape as often as it fits, then less often, and skips a branch that cannot beat the
best filling so far. The number of steps is limited; a search that reaches the limit returns a filling that
is nearly the best. Steps are counted, not timed, so that equal input gives equal output on every machine.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from math import inf
from operator import le
from typing import NamedTuple

Vector = tuple[int, ...]
"""One amount for each resource; no amount is negative."""

MAX_FILLINGS = 4096
"""Length of the longest list of fillings: it takes 0.5 MB, and 10 ms to build."""
_MAX_LISTS = 256
"""Number of cached lists: one for each node size and set of shapes that fit; most lists are short."""
MAX_STEPS = 128
"""Most fillings that one search tries; these take 0.3 ms."""
_TOLERATED = 50
"""A search ends when its filling misses the bound by at most the largest worth divided by this."""


class _Level(NamedTuple):
    """A shape, in the order in which a search tries them."""

    shape: Vector
    needs: tuple[tuple[int, int], ...]
    """(resource, amount) that the shape needs."""
    worth: int
    bounds: tuple[tuple[int, int, int], ...]
    """(resource, worth, need) of the densest shape among this one and all later ones: the shape with
    the most worth per unit of the resource. Only resources that all these shapes need are listed."""

    def bound(self, free: Vector) -> int | None:
        """Returns an upper bound for the worth of this shape and all later ones; None if unknown."""
        return min([free[r] * worth // need for r, worth, need in self.bounds], default=None)


class Filling:
    """Searches the filling with the largest total worth."""

    def __init__(self, shapes: Sequence[Vector], worths: Sequence[int]) -> None:
        """Prepares the shapes.

        Args:
            shapes: Amounts of a pod of each shape; at least one amount is positive.
            worths: Worth of a pod of each shape; all are positive.
        """
        self._shapes, self._worths = tuple(shapes), tuple(worths)
        self._levels: dict[tuple[int, ...], tuple[_Level, ...]] = {}
        """Ordered indices of the shapes that fit -> their levels; at most 64 entries for four shapes."""
        self._list = lru_cache(maxsize=_MAX_LISTS)(self._list_fillings)

    def best(self, free: Vector) -> int:
        """Returns the largest sum of worths that fits into `free`, or slightly less."""
        indices = tuple([i for i, shape in enumerate(self._shapes) if all(map(le, shape, free))])
        if not indices:
            return 0
        fillings = self._list(indices, tuple([amount.bit_length() for amount in free]))
        if fillings is not None:
            return fillings.best(free)
        search = self.search(free)
        return search.best if search is not None else 0

    def _list_fillings(
        self, indices: tuple[int, ...], bits: tuple[int, ...]
    ) -> "SortedFillings | None":
        """Returns all fillings with these shapes for amounts of the given bit lengths; None if too many."""
        top = tuple([(1 << count) - 1 for count in bits])
        fillings = [(0, (0,) * len(top))]
        for index in indices:
            shape, worth = self._shapes[index], self._worths[index]
            more = fillings
            while more and len(fillings) <= MAX_FILLINGS:
                one_more = [
                    (filled + worth, tuple([u + s for u, s in zip(used, shape, strict=True)]))
                    for filled, used in more
                ]
                more = [filling for filling in one_more if all(map(le, filling[1], top))]
                fillings = fillings + more
        if len(fillings) > MAX_FILLINGS:
            return None
        return SortedFillings(self._level(indices), fillings)

    def search(self, free: Vector) -> "Search | None":
        """Returns a finished search, or None if no shape fits.

        The search tries shapes by descending density: their worth per share of the free amounts.
        """
        scarcity = [1 / amount if amount else 0.0 for amount in free]
        densities = []
        for index, (shape, worth) in enumerate(zip(self._shapes, self._worths, strict=True)):
            if all(need <= amount for need, amount in zip(shape, free, strict=True)):
                portion = sum([need * s for need, s in zip(shape, scarcity, strict=True)])
                densities.append((worth / portion, worth, index))
        if not densities:
            return None
        order = tuple([index for _, _, index in sorted(densities, reverse=True)])
        levels = self._levels.get(order)
        if levels is None:
            levels = self._levels[order] = tuple(
                self._level(order[number:]) for number in range(len(order))
            )
        return Search(levels, free, max(self._worths) // _TOLERATED)

    def _level(self, indices: Sequence[int]) -> _Level:
        shapes, worths = self._shapes, self._worths
        bounds = []
        for resource in range(len(shapes[0])):
            if all(shapes[i][resource] for i in indices):
                densest = max(indices, key=lambda i: worths[i] / shapes[i][resource])
                bounds.append((resource, worths[densest], shapes[densest][resource]))
        shape = shapes[indices[0]]
        needs = tuple((resource, need) for resource, need in enumerate(shape) if need)
        return _Level(shape, needs, worths[indices[0]], tuple(bounds))


class SortedFillings:
    """Fillings with some shapes, by descending worth."""

    def __init__(self, level: _Level, fillings: Sequence[tuple[int, Vector]]) -> None:
        """Sorts (worth, amounts used) of all fillings; `level` has the bounds of their shapes."""
        self._level = level
        ordered = sorted(fillings, reverse=True)
        self._used = [used for _, used in ordered]
        self._losses = [-worth for worth, _ in ordered]
        """Negated worths of the fillings, which ascend as `bisect_left` needs."""

    def best(self, free: Vector) -> int:
        """Returns the largest worth of a filling that fits into `free`; the empty one always fits."""
        bound, first = self._level.bound(free), free[0]
        start = bisect_left(self._losses, -bound) if bound is not None else 0
        place = next(
            place
            for place, used in enumerate(islice(self._used, start, None), start)
            if used[0] <= first and all(map(le, used, free))  # `first` excludes most
        )
        return -self._losses[place]


class Search:
    """The result of one search: the best worth found, and the number of steps."""

    def __init__(self, levels: Sequence[_Level], free: Vector, tolerance: int) -> None:
        """Runs the search.

        Args:
            levels: The shapes, in the order in which they are tried.
            free: The amounts to fill.
            tolerance: The search ends with a filling that is at most this far below the bound.
        """
        self._levels = levels
        bound = levels[0].bound(free)
        self._enough = inf if bound is None else bound - tolerance
        """The search ends when it finds a filling of this worth."""
        self.best = 0
        """The worth of the best filling."""
        self.steps = 0
        """Number of fillings that were completed or abandoned."""
        self._fill(0, free, 0)

    def _fill(self, number: int, free: Vector, worth: int) -> None:
        """Tries all numbers of pods of a shape, given pods of earlier shapes with a total of `worth`."""
        shape, needs, each, _ = self._levels[number]
        most = min([free[resource] // need for resource, need in needs])
        if number + 1 == len(self._levels):
            self.steps += 1
            self.best = max(self.best, worth + most * each)
            return
        others = self._levels[number + 1]
        if number + 2 == len(self._levels):
            self._fill_last_two(number, free, worth, most)
            return
        for count in range(most, -1, -1):
            remaining = tuple([f - count * need for f, need in zip(free, shape, strict=True)])
            possible = others.bound(remaining)
            if possible is None or worth + count * each + possible > self.best:
                self._fill(number + 1, remaining, worth + count * each)
            else:
                self.steps += 1
            if self._ends():
                return

    def _fill_last_two(self, number: int, free: Vector, worth: int, most: int) -> None:
        """Tries all numbers of pods of the second-to-last shape, each with as many of the last as fit.

        Most steps of a search happen here. For the last shape, counting the pods that fit is cheaper than
        computing a bound.
        """
        shape, each, last = self._levels[number].shape, self._levels[number].worth, self._levels[-1]
        needs = [(free[resource], shape[resource], need) for resource, need in last.needs]
        best, steps, last_worth = self.best, self.steps, last.worth  # faster than attributes
        for count in range(most, -1, -1):
            fitting = min([(amount - count * taken) // need for amount, taken, need in needs])
            steps += 1
            total = worth + count * each + fitting * last_worth
            best = max(best, total)
            if steps >= MAX_STEPS or best >= self._enough:
                break
        self.best, self.steps = best, steps

    def _ends(self) -> bool:
        return self.steps >= MAX_STEPS or self.best >= self._enough
