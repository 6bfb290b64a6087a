"""Pods that one node is named for: a DaemonSet that is rolled out has one such pod for each node."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import cluster_state as cluster_state_module
from policy.cluster import fits, placement
from policy.cluster.placement import Packing
from policy.cluster.snapshot import Constraints, Node, Pod, Requirement, Toleration
from policy.document.model import NodePool, Policy
from policy.planning.free_capacity import NOWHERE, FreeCapacity
from policy.planning.planner import plan
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

_EVERYWHERE = (Toleration("", "Exists", "", ""),)


def _named(name: str) -> Constraints:
    """As the DaemonSet controller writes them."""
    return Constraints(((Requirement("metadata.name", "In", (name,)),),), _EVERYWHERE)


def _labelled(name: str) -> Constraints:
    return Constraints(((Requirement("host", "In", (name,)),),), _EVERYWHERE)


def _agent(number: int) -> Pod:
    constraints = _named(f"n{number}")
    return service(f"agent-{number}", 1, owner_uid="agent", constraints=constraints)


@pytest.mark.parametrize(
    ("terms", "only_node"),
    [
        ((), ""),
        (_named("n0").terms, "n0"),
        ((*_named("n0").terms, *_named("n0").terms), "n0"),
        ((*_named("n0").terms, *_named("n1").terms), ""),
        (((Requirement("host", "Exists", ()), *_named("n0").terms[0]),), "n0"),
        (((Requirement("metadata.name", "In", ("n0", "n1")),),), ""),
        (((Requirement("metadata.name", "NotIn", ("n0",)),),), ""),
        ((*_named("n0").terms, ()), ""),
    ],
)
def test_constraints_tell_the_one_node_that_they_leave(
    terms: tuple[tuple[Requirement, ...], ...], only_node: str
) -> None:
    """Only where every alternative names the same one."""
    assert Constraints(terms).only_node == only_node


@pytest.mark.parametrize("used", [0, 5])
def test_a_rollout_looks_at_each_node_for_its_own_pod_only(
    monkeypatch: pytest.MonkeyPatch, used: int
) -> None:
    """The work grows with the nodes, not with their square: with room, and where trainers leave."""
    size = 40
    owner = job("a", 1, size, cpu=5)
    nodes = [node(f"n{number}", 5 if used else 10) for number in range(size)]
    cluster = cluster_state(nodes, [owner], trainers(owner, [f"n{n}" for n in range(size)]))
    plan(cluster, Policy(), NOW_S)
    looks: Counter[str] = Counter()

    def counting(
        candidate: Node, constraints: Constraints, pools: tuple[NodePool, ...] = ()
    ) -> object:
        looks[candidate.name] += 1
        return placement.admits(candidate, constraints, pools)

    monkeypatch.setattr(cluster_state_module, "admits", counting)
    monkeypatch.setattr(fits, "admits", counting)
    for number in range(size):
        cluster.put_pod(_agent(number))
    new_plan = plan(cluster, Policy(), NOW_S)

    # One trainer is guaranteed: for its node kube-scheduler decides.
    assert len(new_plan.releases) == (size - 1 if used else 0)
    assert max(looks.values()) <= 5


def test_a_pod_of_a_rollout_costs_the_trainers_of_its_node_only() -> None:
    """Wherever room is free, its own node's trainer leaves."""
    owner = job("a", 1, 4)
    cluster = cluster_state(
        [node("n0", 5), node("n1", 5), node("n2", 50)],
        [owner],
        [*trainers(owner, ["n0", "n1"]), _agent(1)],
    )

    assert [release.node for release in plan(cluster, Policy(), NOW_S).releases] == ["n1"]


def test_prices_of_other_shapes_survive_a_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that fit on one node at most are not worth a place in the cache."""
    monkeypatch.setattr(fits, "_MAX_PRICES", 9)
    nodes = {f"n{number}": node(f"n{number}", 10) for number in range(8)}
    prices = fits.Prices(nodes, {name: n.allocatable for name, n in nodes.items()})
    for name in nodes:
        prices.changes.add(name, exists=True)
    prices.pack_by(Packing((), {}))
    web = prices.fits(shape(3), Constraints(), ())

    rollout = [set(prices.fits(shape(1), _named(name), ()).costs) for name in (*nodes, "gone")]

    assert rollout == [*({name} for name in nodes), set()]
    assert prices.fits(shape(3), Constraints(), ()) is web


@CALM
@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from("slt")), max_size=6),
    st.integers(1, 9),
    st.sampled_from([NOWHERE, frozenset({"n0"})]),
)
def test_a_name_chooses_as_a_label_would(
    sizes: list[tuple[int, bool, bool]],
    taken: list[tuple[int, int, str]],
    cpu: int,
    closed: frozenset[str],
) -> None:
    """The short way for one node answers as the search through all does."""
    nodes = [
        node(f"n{i}", size, labels={"host": f"n{i}"} | ({"p": "y"} if inside else {}), ready=ready)
        for i, (size, inside, ready) in enumerate(sizes)
    ]
    owner = job("a", 1, 9)
    pods = []
    for number, (where, amount, kind) in enumerate(taken):
        pod = service(f"s{number}", amount, f"n{where}", deleting=kind == "l")
        pods.append(trainer(owner, number, f"n{where}") if kind == "t" else pod)
    policy = Policy(node_pools=(NodePool(name="p", labels={"p": "y"}),))
    capacity = FreeCapacity(cluster_state(nodes, [owner], pods), policy, NOW_S)

    def choices(constraints: Constraints) -> list[object]:
        requests = shape(cpu)
        return [
            *(
                capacity.choose_node(requests, constraints, pooled=pooled)
                for pooled in (False, True)
            ),
            capacity.cheapest_node(requests, constraints, closed),
        ]

    for name in ("n0", "n1", "n2"):
        assert choices(_named(name)) == choices(_labelled(name))
