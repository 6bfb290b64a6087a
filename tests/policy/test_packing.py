from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import amounts
from policy.cluster.placement import Packing, score
from tests.support.builders import cluster_state, job, node, shape, trainer
from tests.support.strategies import CALM

_TOTAL = shape(1000, 4000) | {"nvidia.com/gpu": 1000}
"""A cluster in which CPU is the scarce resource of all shapes here."""


def _packing(*shapes: dict[str, int]) -> Packing:
    return Packing(shapes, _TOTAL)


def _cheapest(packing: Packing, requests: dict[str, int], free: dict[str, float]) -> str:
    """The node that a pod goes to."""
    rooms = {name: shape(cpu) | {"pods": 110} for name, cpu in free.items()}
    return min(rooms, key=lambda name: (packing.cost(requests, rooms[name]), name))


class _Counting(Packing):
    """Counts how often it divides what is free."""

    divisions = 0

    def _rounded(
        self, requests: Mapping[str, int], free: Mapping[str, int], count: int
    ) -> tuple[int, ...]:
        self.divisions += 1
        return super()._rounded(requests, free, count)


def test_of_nodes_that_are_alike_one_is_priced() -> None:
    """A large cluster has thousands of them, and a burst of services fills them alike."""
    packing = _Counting([shape(5), shape(3)], _TOTAL)
    rooms = [shape(cpu) | {"pods": 110} for cpu in (9, 16)]
    costs = [packing.cost(shape(4), room) for room in rooms]
    divisions = packing.divisions

    assert [packing.cost(shape(4), room) for room in rooms * 500] == costs * 500
    assert packing.divisions == divisions


def test_whole_slots_stay_free() -> None:
    """The pod of 4 CPU goes where 9 are free and leaves 5, not where 8.5 are."""
    assert _cheapest(_packing(shape(5)), shape(4), {"a": 8.5, "b": 9}) == "b"


def test_a_pod_goes_where_it_fragments_nothing() -> None:
    """3 CPU go beside three trainers of 5 on the node of 18, not where they cost one."""
    packing = _packing(shape(5))

    assert _cheapest(packing, shape(3), {"empty": 15, "rest": 3, "whole": 18}) == "rest"
    assert _cheapest(packing, shape(3), {"empty": 15, "whole": 18}) == "whole"


def test_pods_that_come_in_sets_go_where_the_set_fragments_least() -> None:
    """Two of 4 CPU cost one trainer on a node of 18; on one of 17 the second costs another."""
    assert _cheapest(_packing(shape(5)), shape(4), {"a": 17, "b": 18}) == "b"


def test_among_equals_the_fullest_node_is_filled() -> None:
    """So that large free blocks remain for shapes that come later."""
    assert _cheapest(_packing(shape(5)), shape(5), {"a": 15, "b": 5, "c": 10}) == "b"


def test_mixtures_of_shapes_are_counted_exactly() -> None:
    """The node of 18 CPU takes two of 5 (1 000 each) and two of 4 (800)."""
    packing = _packing(shape(5), shape(4))

    assert packing.value(shape(18)) == 3_600
    assert packing.value(shape(11)) == 2_000
    assert packing.value(shape(3)) == 0
    assert packing.value({"cpu": -5}) == 0


def test_all_resources_bind() -> None:
    """Free CPU does not help where memory or devices are missing."""
    packing = _packing(shape(5, memory=8, gpus=1))

    assert packing.value(shape(15, memory=20, gpus=8)) == 2_000
    assert packing.value(shape(15, memory=64)) == 0


def test_shapes_count_by_the_resource_that_is_scarce() -> None:
    """Devices alone can be what trainers need; memory can be dearer than CPU."""
    assert _packing({"nvidia.com/gpu": 2}).value({"nvidia.com/gpu": 7}) == 3_000
    lean, deep = shape(4, memory=1), shape(1, memory=8)
    total = shape(100, memory=100)

    assert Packing([lean, deep], total).worths == (500, 1_000)
    assert Packing([lean, deep], {}).worths == (1, 1)


def test_a_node_more_in_a_large_cluster_changes_no_price() -> None:
    """Else every node that joins would make the whole price list void."""
    shapes = [shape(4, memory=1), shape(1, memory=8)]
    before, after = shape(5000 * 18, memory=5000 * 64), shape(5001 * 18, memory=5001 * 64)

    assert Packing(shapes, before).worths == Packing(shapes, after).worths


def test_without_shapes_nothing_is_fragmented() -> None:
    """No elastic job, or shapes of nothing: then only what is left counts."""
    for packing in (_packing(), _packing({}, {"pods": 1}, {"cpu": 0})):
        assert packing.cost(shape(2), shape(5)) == (0, 3_000)


@CALM
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=2, unique=True),
    st.integers(0, 20),
)
def test_the_value_of_room_is_the_best_filling(sizes: list[int], free: int) -> None:
    """With one or two shapes the value equals that of a full search."""
    best = {0}
    for _ in range(20):
        best |= {used + size for used in best for size in sizes if used + size <= free}

    value = _packing(*[shape(size) for size in sizes]).value(shape(free))

    assert value == pytest.approx(1000 * max(best) / max(sizes), abs=10)


@CALM
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6, unique=True),
    st.integers(1, 200),
    st.integers(1, 40),
)
def test_taking_room_never_adds_value(sizes: list[int], free: int, requested: int) -> None:
    """What a placement costs is between nothing and all there was."""
    packing = _packing(*[shape(size) for size in sizes])
    if requested <= free:
        fragmentation, remaining_cpu = packing.cost(shape(requested), shape(free))
        assert (
            fragmentation / 12
            <= packing.value(shape(free))
            <= 1000 * free / max(sizes[:4]) + 5 * free
        )
        assert remaining_cpu == 1000 * (free - requested)


def test_many_small_shapes_on_a_large_node_are_quick() -> None:
    """Shapes of a hundredth of a node would make an exact search endless."""
    packing = _packing(shape(0.1), shape(0.15), shape(0.2), shape(0.25))

    assert packing.value(shape(128)) == pytest.approx(1000 * 128 / 0.25, rel=0.01)


def test_amounts_in_use_stay_as_they_are() -> None:
    """Pricing a placement changes nothing."""
    free = shape(18)
    _packing(shape(5)).cost(shape(4), free)

    assert amounts.within(shape(18), free)


@CALM
@given(st.dictionaries(st.text("abc-", max_size=3), st.tuples(st.integers(), st.integers())))
def test_scores_keep_range_and_order(costs: dict[str, tuple[int, int]]) -> None:
    """0 to 10, the cheapest node always 10, and never more for a dearer node."""
    scores = score(costs)

    assert scores.keys() == costs.keys()
    assert all(0 <= value <= 10 for value in scores.values())
    ordered = [scores[name] for name in sorted(costs, key=lambda name: costs[name])]
    assert ordered == sorted(ordered, reverse=True)
    assert not scores or max(scores.values()) == 10


def test_few_costs_keep_levels_of_their_own() -> None:
    """Up to eleven different costs, no two of them share a score."""
    scores = score({str(i): (i * i, 0) for i in range(11)})

    assert len(set(scores.values())) == 11


def test_packing_takes_trainers_as_admission_made_them() -> None:
    """The extender knows templates and pods: the newest trainer shows what an injector adds."""
    owner = job("a", 1, 9, cpu=5)
    cluster = cluster_state([node("n0", 50)], [owner], [trainer(owner, 0, "n0")])
    assert dict(cluster.packing.shapes[0])["cpu"] == 5000

    injected = trainer(owner, 1, "n0", requests=shape(5.1))
    cluster.put_pod(injected)
    assert dict(cluster.packing.shapes[0])["cpu"] == 5100
    cluster.put_pod(trainer(owner, 2, "n0", requests=shape(9), master=True))
    assert dict(cluster.packing.shapes[0])["cpu"] == 5100

    cluster.drop_pod(injected.uid)
    assert dict(cluster.packing.shapes[0])["cpu"] == 5000
