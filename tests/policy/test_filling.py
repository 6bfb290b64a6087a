"""The bounded search for the best filling of a node, beside a full one."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster.filling import MAX_STEPS, Filling, Vector
from policy.cluster.placement import Packing
from tests.support.builders import shape
from tests.support.strategies import CALM

_ODD = {
    "sidecar": [shape(2.1, 4.2), shape(4.1, 8.2), shape(1.1, 3.1), shape(8.1, 16.3)],
    "prime": [
        shape(1.733, 3.917),
        shape(3.337, 7.131),
        shape(0.911, 2.713),
        shape(7.177, 13.77),
    ],
    "small": [shape(0.1, 0.3), shape(0.15, 0.2), shape(0.2, 0.7), shape(0.25, 0.5)],
    "devices": [
        shape(7.3, 40.1, gpus=1),
        shape(28.7, 181, gpus=4),
        shape(2.1, 4.2),
        shape(4.1, 8.2),
    ],
}


def _full_search(shapes: list[Vector], worths: list[int], free: Vector) -> int:
    if not shapes:
        return 0
    best, count = 0, 0
    while all(amount >= 0 for amount in free):
        best = max(best, count * worths[0] + _full_search(shapes[1:], worths[1:], free))
        free = tuple(f - s for f, s in zip(free, shapes[0], strict=True))
        count += 1
    return best


_amount = st.integers(0, 12)
_shapes = st.lists(
    st.tuples(st.tuples(_amount, _amount, _amount).filter(any), st.integers(1, 1_000)),
    min_size=1,
    max_size=4,
)


@CALM
@given(_shapes, st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)))
def test_a_filling_is_never_more_than_fits(pairs: list[tuple[Vector, int]], free: Vector) -> None:
    """And where the search ended by itself, it misses at most 2 % of the most worthy pod."""
    shapes, worths = [shape_ for shape_, _ in pairs], [worth for _, worth in pairs]
    filling = Filling(shapes, worths)
    search = filling.search(free)
    exact = _full_search(shapes, worths, free)

    assert filling.best(free) <= exact
    assert (search is None) == (exact == 0)
    if search is not None and search.steps < MAX_STEPS:
        assert exact - search.best <= max(worths) / 50


def test_the_densest_shape_fills_what_is_scarce() -> None:
    """Where memory is short, the shape of little memory goes first, whatever its CPU."""
    lean, deep = (4, 1), (1, 8)

    assert Filling([lean, deep], [500, 1_000]).best((16, 4)) == 2_000
    assert Filling([lean, deep], [500, 1_000]).best((3, 24)) == 3_000
    assert Filling([], []).best((3, 24)) == 0
    assert Filling([lean], [500]).best((3, 24)) == 0


@pytest.mark.parametrize("shapes", _ODD.values(), ids=_ODD)
def test_odd_shapes_on_large_nodes_take_a_bounded_number_of_steps(
    shapes: list[dict[str, int]],
) -> None:
    """A search by all their mixtures took 40 to 260 ms a node, and as much after each change."""
    names = ("cpu", "memory", "nvidia.com/gpu")
    vectors = [tuple(each.get(name, 0) for name in names) for each in shapes]
    filling = Filling(vectors, Packing(shapes, shape(6_400, 25_400, gpus=800)).worths)
    random = Random(1)  # noqa: S311 - repeatable on purpose
    for _ in range(40):
        free = shape(64 * random.random(), 254 * random.random(), random.randrange(9))
        search = filling.search(tuple(free.get(name, 0) for name in names))

        assert search is None or 0 < search.steps <= MAX_STEPS


@pytest.mark.parametrize("name", ["sidecar", "prime", "devices"])
def test_a_few_large_pods_fill_a_node_exactly(name: str) -> None:
    """All their fillings are listed once; a search at every node made plans four times as long."""
    shapes = _ODD[name]
    names = ("cpu", "memory", "nvidia.com/gpu")
    vectors: list[Vector] = [tuple(each.get(n, 0) for n in names) for each in shapes]
    worths = Packing(shapes, shape(6_400, 25_400, gpus=800)).worths
    filling = Filling(vectors, worths)
    random = Random(3)  # noqa: S311 - repeatable on purpose
    for _ in range(10):
        free = shape(16 * random.random(), 64 * random.random(), random.randrange(9))
        vector = tuple(free.get(n, 0) for n in names)

        assert filling.best(vector) == _full_search(vectors, list(worths), vector)


def test_many_small_pods_are_searched_for() -> None:
    """They fill a node in too many ways to list; the list is given up before it is long."""
    vectors: list[Vector] = [(100, 300), (150, 200), (200, 700), (250, 500)]
    filling = Filling(vectors, [400, 500, 800, 1_000])
    search = filling.search((64_001, 200_003))

    assert search is not None
    assert filling.best((64_001, 200_003)) == search.best
    assert filling.best((1_001, 2_003)) == _full_search(
        vectors, [400, 500, 800, 1_000], (1_001, 2_003)
    )


@pytest.mark.parametrize("shapes", _ODD.values(), ids=_ODD)
def test_prices_of_odd_shapes_are_never_negative(shapes: list[dict[str, int]]) -> None:
    """A bounded search may find more in less room; taking room is no gain all the same."""
    packing = Packing(shapes, shape(6_400, 25_400, gpus=800))
    random = Random(2)  # noqa: S311 - as above
    for number in range(40):
        free = shape(29 + 35 * random.random(), 182 + 70 * random.random(), 8)

        assert packing.cost(shapes[number % 4], free)[0] >= 0
