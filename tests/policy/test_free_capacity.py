from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import amounts
from policy.cluster.snapshot import ANYWHERE, Constraints, Node, Pod, Requirement
from policy.document.model import NodePool, Policy
from policy.planning.free_capacity import FreeCapacity, When
from tests.support.builders import (
    NOW_S,
    cluster_state,
    job,
    node,
    service,
    shape,
    trainer,
    trainers,
)
from tests.support.strategies import CALM

_JOB = job("a", 1, 4)
_ONLY_N1 = Constraints(terms=((Requirement("metadata.name", "In", ("n1",)),),))


def _capacity(
    nodes: Sequence[Node], pods: Sequence[Pod] = (), pools: tuple[NodePool, ...] = ()
) -> FreeCapacity:
    return FreeCapacity(cluster_state(nodes, [_JOB], pods), Policy(node_pools=pools), NOW_S)


def _place(
    capacity: FreeCapacity, cpu: float, constraints: Constraints = ANYWHERE
) -> tuple[str, bool]:
    return capacity.choose_node(shape(cpu), constraints, pooled=False)


def test_free_room_comes_before_coming_before_reclaimed_room() -> None:
    """Only where nothing else is left must a surplus trainer leave."""
    going = service("going", 10, "n1", deleting=True)
    surplus = trainers(_JOB, ["n2", "n2"])
    capacity = _capacity([node(f"n{i}", 10) for i in range(3)], [going, *surplus])

    places = []
    for _ in range(3):
        node_name, must_leave = _place(capacity, 5)
        capacity.reserve(node_name, shape(5))
        places.append((node_name, must_leave))
    assert places == [("n0", False), ("n0", False), ("n1", False)]
    capacity.reserve("n1", shape(5))
    assert _place(capacity, 5) == ("n2", True)
    capacity.reserve("n2", shape(5))
    assert _place(capacity, 5) == ("", False)


def test_who_is_let_go_is_not_counted_twice() -> None:
    """Capacity of a released trainer is free later, and not reclaimable any more."""
    pods = trainers(_JOB, ["n0", "n0"])
    capacity = _capacity([node("n0", 10)], pods)

    capacity.add_leaving(pods[1])

    assert _place(capacity, 5) == ("n0", False)
    capacity.reserve("n0", shape(5))
    assert _place(capacity, 5) == ("", False)


def test_pods_without_a_node_leave_nothing() -> None:
    """Nor do those on a node that is gone."""
    capacity = _capacity([node("n0", 10)])
    capacity.add_leaving(trainer(_JOB, 1))
    capacity.add_leaving(trainer(_JOB, 2, "gone"))

    assert not list(capacity.nodes_with(When.LATER))


def test_among_equal_nodes_a_pod_goes_where_it_fragments_least() -> None:
    """3 CPU go into the rest that no trainer can use."""
    capacity = _capacity([node("n0", 15), node("n1", 8), node("n2", 18)])

    assert _place(capacity, 3) == ("n1", False)


def test_closed_nodes_have_no_capacity() -> None:
    """Constraints bind all pods, pools trainers only."""
    pools = (NodePool(name="p", labels={"pool": "x"}),)
    capacity = _capacity([node("n0", 10), node("n1", 10, labels={"pool": "x"})], pools=pools)

    assert _place(capacity, 5, _ONLY_N1) == ("n1", False)
    assert capacity.choose_node(shape(5), ANYWHERE, pooled=True) == ("n1", False)
    assert set(capacity.open_nodes(ANYWHERE, pooled=False)) == {"n0", "n1"}


def test_a_trainer_takes_only_what_is_free_now() -> None:
    """Capacity that is free later or reclaimable does not count."""
    going = service("going", 10, "n0", deleting=True)
    capacity = _capacity([node("n0", 10), node("n1", 10)], [going, *trainers(_JOB, ["n1", "n1"])])

    assert capacity.cheapest_node(shape(5), ANYWHERE, frozenset()) == ""


def test_slots_respect_constraints_and_closed_nodes() -> None:
    """A node that cools down is not used."""
    capacity = _capacity([node("n0", 10), node("n1", 10)])

    assert capacity.cheapest_node(shape(5), ANYWHERE, frozenset()) == "n0"
    assert capacity.cheapest_node(shape(5), ANYWHERE, frozenset({"n0"})) == "n1"
    assert capacity.cheapest_node(shape(5), _ONLY_N1, frozenset()) == "n1"
    assert capacity.cheapest_node(shape(5), _ONLY_N1, frozenset({"n1"})) == ""


@CALM
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from(["find", "reserve", "unreserve"]), st.integers(1, 6)), max_size=25
    ),
)
def test_a_slot_is_always_the_cheapest(sizes: list[int], steps: list[tuple[str, int]]) -> None:
    """After any reservations the heap gives the same answer as a full search."""
    cluster = cluster_state([node(f"n{i}", size) for i, size in enumerate(sizes)], [_JOB])
    capacity, packing = FreeCapacity(cluster, Policy(), NOW_S), cluster.packing
    reservations: list[tuple[str, int]] = []
    for action, cpu in steps:
        fitting = [
            f"n{i}"
            for i in range(len(sizes))
            if amounts.within(shape(cpu), capacity.free_now(f"n{i}"))
        ]
        best = min(
            fitting, key=lambda n: (packing.cost(shape(cpu), capacity.free_now(n)), n), default=""
        )
        if action == "unreserve" and reservations:
            node_name, size = reservations.pop(0)
            capacity.unreserve(node_name, shape(size))
        elif action == "find":
            assert capacity.cheapest_node(shape(cpu), ANYWHERE, frozenset()) == best
        elif best:
            capacity.reserve(best, shape(cpu))
            reservations.append((best, cpu))
