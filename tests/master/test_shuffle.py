"""The order of tasks."""

from hypothesis import given
from hypothesis import strategies as st

from master.partitioning import TaskOrder


@given(st.integers(1, 300), st.integers(0, 1 << 40), st.integers(0, 5))
def test_an_order_has_every_number_once(count: int, seed: int, epoch: int) -> None:
    """It is a permutation."""
    order = TaskOrder(count, seed, epoch)

    assert sorted(order.number_at(place) for place in range(count)) == list(range(count))


@given(st.integers(1, 1 << 40), st.integers(0, 9), st.data())
def test_a_place_is_found_back(count: int, seed: int, data: st.DataObject) -> None:
    """In both directions, for numbers that no list could hold."""
    order = TaskOrder(count, seed, 0)
    place = data.draw(st.integers(0, count - 1))

    assert 0 <= order.number_at(place) < count
    assert order.position_of(order.number_at(place)) == place


def test_without_a_seed_nothing_moves() -> None:
    """Records come as they are stored."""
    order = TaskOrder(9, None, 0)

    assert [order.number_at(place) for place in range(9)] == list(range(9))
    assert [order.position_of(place) for place in range(9)] == list(range(9))


def test_epochs_and_seeds_differ() -> None:
    """Each epoch and each seed has another order; the same values give the same one."""
    orders = [
        [TaskOrder(50, seed, epoch).number_at(place) for place in range(50)]
        for seed, epoch in ((1, 0), (1, 1), (2, 0), (1, 0))
    ]

    assert orders[0] == orders[3]
    assert orders[0] not in orders[1:3]
    assert orders[0] != list(range(50))


def test_neighbours_are_torn_apart() -> None:
    """On average they are a third of the data set apart, as by chance."""
    count = 10_000
    order = TaskOrder(count, 7, 0)
    gaps = [abs(order.number_at(place) - order.number_at(place + 1)) for place in range(count - 1)]

    assert 0.30 < sum(gaps) / len(gaps) / count < 0.36
