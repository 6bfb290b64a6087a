"""The fewest trainers that must go for a burst."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from e2e.measure.unavoidable import NodeCapacity, unavoidable

_NODES = st.lists(
    st.builds(NodeCapacity, st.integers(-1, 9).map(lambda cpu: cpu * 1000), st.integers(0, 3)),
    max_size=4,
)


def _least(nodes: list[NodeCapacity], services: int) -> int:
    return unavoidable(nodes, services, service_millis=3000, trainer_millis=5000)


def test_nobody_goes_where_whole_services_fit_already() -> None:
    """Free room of whole services costs nothing."""
    assert _least([NodeCapacity(6000, 3)], 2) == 0


def test_odd_remainders_hold_no_service() -> None:
    """Two nodes with 2 CPU free have 4 CPU in sum, and room for no service of 3."""
    assert _least([NodeCapacity(2000, 2), NodeCapacity(2000, 2)], 1) == 1


def test_the_node_is_taken_where_a_leaving_trainer_frees_most() -> None:
    """5 CPU beside 1 free make two services, 5 alone only one."""
    assert _least([NodeCapacity(0, 3), NodeCapacity(1000, 3)], 2) == 1


def test_where_all_are_too_few_all_go() -> None:
    """More services than the nodes can ever hold take every trainer, and no more."""
    assert _least([NodeCapacity(0, 2)], 100) == 2


def test_no_services_need_nobody() -> None:
    """A step that adds nothing kills nobody."""
    assert _least([NodeCapacity(0, 2)], 0) == 0


@given(_NODES, st.integers(0, 8))
def test_it_is_the_optimum(nodes: list[NodeCapacity], services: int) -> None:
    """No choice of trainers is smaller: checked against all choices."""
    choices = product(*(range(node.trainers + 1) for node in nodes))
    enough = [
        sum(choice)
        for choice in choices
        if sum(
            max(0, node.free_millis + count * 5000) // 3000
            for node, count in zip(nodes, choice, strict=True)
        )
        >= services
    ]
    everything = sum(node.trainers for node in nodes)
    assert _least(nodes, services) == min(enough, default=everything)
