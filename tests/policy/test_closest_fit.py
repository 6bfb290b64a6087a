import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster.placement import closest_fit
from policy.decisions import sentence
from policy.reasons import Reason
from tests.support.builders import shape
from tests.support.strategies import CALM

NEEDS = shape(5, 8)


def test_the_node_that_lacks_least_is_named() -> None:
    """Much of one resource does not make up for too little of another."""
    free = {"cpu-only": shape(64, 1), "close": shape(4, 8), "full": shape(0, 64)}

    assert closest_fit(NEEDS, free.keys(), free) == {
        "nodes": 3,
        "nearest": "close",
        "free": {"cpu": 4000, "memory": 8 * 2**30, "pods": 1},
    }


def test_a_pod_that_may_use_no_node_is_near_to_none() -> None:
    """The number of nodes is 0."""
    assert closest_fit(NEEDS, [], {}) == {"nodes": 0}


def test_promised_more_than_free_is_shown_as_nothing() -> None:
    """A negative amount would only puzzle who reads it."""
    figures = closest_fit(shape(5), ["n0"], {"n0": {"cpu": -3000, "pods": 7}})

    assert figures["free"] == {"cpu": 0, "pods": 7}
    text = sentence(Reason.NO_ROOM, {"needs": shape(5), **figures})
    assert text.endswith("closest is n0 with nothing free")


@pytest.mark.parametrize("requests", [{}, {"cpu": 0}])
def test_a_pod_that_asks_for_nothing_is_answered_too(requests: dict[str, int]) -> None:
    """Odd, and no reason to fail."""
    assert closest_fit(requests, ["n0"], {"n0": shape(1)})["nearest"] == "n0"


@CALM
@given(st.permutations([f"n{number}" for number in range(6)]))
def test_the_order_of_nodes_changes_nothing(names: list[str]) -> None:
    """Records of two plans on one cluster are equal."""
    free = {name: shape(int(name[1]) // 2, 64) for name in sorted(names)}

    assert closest_fit(NEEDS, names, free) == closest_fit(NEEDS, sorted(names), free)
