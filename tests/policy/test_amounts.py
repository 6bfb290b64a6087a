import pytest

from policy.cluster import amounts


def test_sums_know_missing_resources() -> None:
    """A resource that is missing counts as 0, and a difference may be negative."""
    total = {"cpu": 1}
    amounts.add(total, {"cpu": 2, "memory": 3})
    assert total == {"cpu": 3, "memory": 3}
    amounts.subtract(total, {"cpu": 5, "gpu": 1})
    assert total == {"cpu": -2, "memory": 3, "gpu": -1}


def test_amounts_are_cut_at_their_limits() -> None:
    """What has no limit is not there at all."""
    assert amounts.at_most({"cpu": 5, "memory": 3, "x": 9}, {"cpu": 4, "memory": 8}) == {
        "cpu": 4,
        "memory": 3,
        "x": 0,
    }


@pytest.mark.parametrize(
    ("requested", "free", "fits"),
    [
        ({"cpu": 2}, {"cpu": 2}, True),
        ({"cpu": 3}, {"cpu": 2}, False),
        ({"cpu": 1, "gpu": 1}, {"cpu": 2}, False),
        ({"cpu": 1, "gpu": 0}, {"cpu": 2}, True),
        ({"gpu": 0}, {"gpu": -1}, True),
        ({}, {}, True),
    ],
)
def test_every_requested_amount_must_be_free(
    requested: dict[str, int], free: dict[str, int], *, fits: bool
) -> None:
    """Asking for 0 asks for nothing, even where less than nothing is free."""
    assert amounts.within(requested, free) is fits


@pytest.mark.parametrize(
    ("requested", "free", "count"),
    [
        ({"cpu": 5, "memory": 8}, {"cpu": 18, "memory": 20}, 2),
        ({"cpu": 5}, {"cpu": -1}, 0),
        ({"gpu": 1}, {"cpu": 18}, 0),
        ({"cpu": 5, "gpu": 0}, {"cpu": 18}, 3),
        ({}, {"cpu": 18}, 0),
    ],
)
def test_the_scarcest_resource_limits_the_number(
    requested: dict[str, int], free: dict[str, int], count: int
) -> None:
    """Whole times only; what asks for nothing goes in 0 times and not for ever."""
    assert amounts.times(requested, free) == count


@pytest.mark.parametrize(
    ("requested", "total", "share"),
    [
        ({"cpu": 5, "memory": 1}, {"cpu": 50, "memory": 100}, 0.1),
        ({"cpu": 5, "memory": 50}, {"cpu": 50, "memory": 100}, 0.5),
        ({"cpu": 5, "pods": 1}, {"cpu": 50, "pods": 4}, 0.25),
        ({"gpu": 1}, {"cpu": 50}, 0.0),
        ({}, {}, 0.0),
    ],
)
def test_the_dominant_share_is_the_largest(
    requested: dict[str, int], total: dict[str, int], share: float
) -> None:
    """Slots of pods count as all else does; a resource that no node has does not."""
    assert amounts.dominant(requested, total) == pytest.approx(share)


def test_amounts_of_several_are_those_of_one_times_their_number() -> None:
    """Of none, each is 0."""
    assert amounts.scaled({"cpu": 1500, "pods": 1}, 3) == {"cpu": 4500, "pods": 3}
    assert amounts.scaled({"cpu": 1500}, 0) == {"cpu": 0}
