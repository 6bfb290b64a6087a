from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from policy import amounts
from policy.model import NodePool
from policy.room import Room, When
from policy.snapshot import ANYWHERE, Constraints, Node, Pod, Requirement
from tests.support.builders import index, job, node, service, shape, trainer, trainers
from tests.support.strategies import CALM

_JOB = job("a", 1, 4)
_ONLY_N1 = Constraints(terms=((Requirement("metadata.name", "In", ("n1",)),),))


def _room(
    nodes: Sequence[Node], pods: Sequence[Pod] = (), pools: tuple[NodePool, ...] = ()
) -> Room:
    return Room(index(nodes, [_JOB], pods), pools)


def _place(room: Room, cpu: float, constraints: Constraints = ANYWHERE) -> tuple[str, bool]:
    return room.place(shape(cpu), constraints, pooled=False)


def test_free_room_comes_before_coming_before_reclaimed_room() -> None:
    """Only where nothing else is left must a surplus trainer leave."""
    going = service("going", 10, "n1", deleting=True)
    surplus = trainers(_JOB, ["n2", "n2"])
    room = _room([node(f"n{i}", 10) for i in range(3)], [going, *surplus])

    places = []
    for _ in range(3):
        where, must_leave = _place(room, 5)
        room.take(where, shape(5))
        places.append((where, must_leave))
    assert places == [("n0", False), ("n0", False), ("n1", False)]
    room.take("n1", shape(5))
    assert _place(room, 5) == ("n2", True)
    room.take("n2", shape(5))
    assert _place(room, 5) == ("", False)


def test_who_is_let_go_is_not_counted_twice() -> None:
    """Room of a trainer that was let go is coming, and no surplus any more."""
    pods = trainers(_JOB, ["n0", "n0"])
    room = _room([node("n0", 10)], pods)

    room.leave(pods[1])

    assert _place(room, 5) == ("n0", False)
    room.take("n0", shape(5))
    assert _place(room, 5) == ("", False)


def test_pods_without_a_node_leave_nothing() -> None:
    """Nor do those on a node that is gone."""
    room = _room([node("n0", 10)])
    room.leave(trainer(_JOB, 1))
    room.leave(trainer(_JOB, 2, "gone"))

    assert not list(room.nodes_with(When.LATER))


def test_among_equal_nodes_a_pod_goes_where_it_spoils_least() -> None:
    """3 CPU go into the rest that no trainer can use."""
    room = _room([node("n0", 15), node("n1", 8), node("n2", 18)])

    assert _place(room, 3) == ("n1", False)


def test_closed_nodes_are_no_room() -> None:
    """Constraints bind all pods, pools trainers only."""
    pools = (NodePool(name="p", labels={"pool": "x"}),)
    room = _room([node("n0", 10), node("n1", 10, labels={"pool": "x"})], pools=pools)

    assert _place(room, 5, _ONLY_N1) == ("n1", False)
    assert room.place(shape(5), ANYWHERE, pooled=True) == ("n1", False)
    assert set(room.open_nodes(ANYWHERE, pooled=False)) == {"n0", "n1"}


def test_a_trainer_takes_only_what_is_free_now() -> None:
    """What is coming or could be reclaimed is no slot."""
    going = service("going", 10, "n0", deleting=True)
    room = _room([node("n0", 10), node("n1", 10)], [going, *trainers(_JOB, ["n1", "n1"])])

    assert room.slot(shape(5), ANYWHERE, frozenset()) == ""


def test_slots_respect_constraints_and_closed_nodes() -> None:
    """A node that cools down is none."""
    room = _room([node("n0", 10), node("n1", 10)])

    assert room.slot(shape(5), ANYWHERE, frozenset()) == "n0"
    assert room.slot(shape(5), ANYWHERE, frozenset({"n0"})) == "n1"
    assert room.slot(shape(5), _ONLY_N1, frozenset()) == "n1"
    assert room.slot(shape(5), _ONLY_N1, frozenset({"n1"})) == ""


@CALM
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(["slot", "take", "give"]), st.integers(1, 6)), max_size=25),
)
def test_a_slot_is_always_the_cheapest(sizes: list[int], steps: list[tuple[str, int]]) -> None:
    """However room comes and goes, the heap answers as a full search would."""
    cluster = index([node(f"n{i}", size) for i, size in enumerate(sizes)], [_JOB])
    room, packing = Room(cluster, ()), cluster.packing
    taken: list[tuple[str, int]] = []
    for what, cpu in steps:
        fitting = [
            f"n{i}" for i in range(len(sizes)) if amounts.within(shape(cpu), room.now(f"n{i}"))
        ]
        best = min(fitting, key=lambda n: (packing.cost(shape(cpu), room.now(n)), n), default="")
        if what == "give" and taken:
            where, size = taken.pop(0)
            room.give(where, shape(size))
        elif what == "slot":
            assert room.slot(shape(cpu), ANYWHERE, frozenset()) == best
        elif best:
            room.take(best, shape(cpu))
            taken.append((best, cpu))
