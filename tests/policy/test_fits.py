"""Prices of shapes on nodes: what is kept, and what is forgotten."""

import pytest

from policy.cluster import fits
from policy.cluster.placement import Packing
from policy.cluster.snapshot import Constraints, Requirement
from policy.document.model import NodePool
from tests.support.builders import node, shape

_NODES = {f"n{i}": node(f"n{i}", 10, labels={"pool": "ab"[i % 2]}) for i in range(4)}
_FREE = {name: node_.allocatable for name, node_ in _NODES.items()}


def _pool(value: str) -> NodePool:
    return NodePool(name=value, labels={"pool": value})


def _prices() -> fits.Prices:
    prices = fits.Prices(_NODES, _FREE)
    for name in _NODES:
        prices.changes.add(name, exists=True)
    prices.pack_by(Packing((), {}))
    return prices


def test_another_policy_opens_other_nodes() -> None:
    """Prices that were made under other node pools are not used."""
    prices = _prices()

    before = set(prices.fits(shape(3), Constraints(), (_pool("a"),)).costs)
    after = set(prices.fits(shape(3), Constraints(), (_pool("b"),)).costs)

    assert (before, after) == ({"n0", "n2"}, {"n1", "n3"})


def test_the_shapes_asked_about_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is bounded, and evicted shapes are priced again with the same result."""
    monkeypatch.setattr(fits, "_MAX_PRICES", 49)
    prices = _prices()

    first = prices.fits(shape(1), Constraints(), ())
    for cpu in (2, 3):
        prices.fits(shape(cpu), Constraints(), ())
    again = prices.fits(shape(1), Constraints(), ())

    assert again is not first
    assert again.costs == first.costs
    assert prices.fits(shape(3), Constraints(), ()) is prices.fits(shape(3), Constraints(), ())


def test_open_nodes_have_the_same_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constraints beyond the bound clear the cache, so it does not grow for ever."""
    monkeypatch.setattr(fits, "_MAX_PRICES", 9)
    prices = _prices()

    for number in range(9):
        constraints = Constraints(((Requirement("pool", "In", (str(number),)),),))
        assert not prices.open_nodes(constraints, ()).names
    assert prices.open_nodes(Constraints(), ()).names == set(_NODES)


def test_what_changed_is_priced_again() -> None:
    """A node that is taken is left out, one that is free again comes back, the others stay."""
    free = dict(_FREE)
    prices = fits.Prices(_NODES, free)
    for name in _NODES:
        prices.changes.add(name, exists=True)
    prices.pack_by(Packing((), {}))
    open_to = (shape(3), Constraints(), ())
    assert set(prices.fits(*open_to).costs) == set(_NODES)

    free["n1"] = shape(2)
    prices.changes.add("n1", exists=True)
    assert set(prices.fits(*open_to).costs) == {"n0", "n2", "n3"}

    free["n1"] = _FREE["n1"]
    prices.changes.add("n1", exists=True)
    assert set(prices.fits(*open_to).costs) == set(_NODES)


def test_a_reader_that_is_far_behind_prices_every_node_again() -> None:
    """The log forgets old changes; what changed meanwhile is right all the same."""
    free = dict(_FREE)
    prices = fits.Prices(_NODES, free)
    prices.pack_by(Packing((), {}))
    for name in _NODES:
        prices.changes.add(name, exists=True)
    behind = prices.fits(shape(3), Constraints(), ())
    free["n0"] = shape(2)
    prices.changes.add("n0", exists=True)
    for _ in range(2000):
        prices.changes.add("n1", exists=True)

    assert prices.changes.since(len(_NODES)) is None
    assert prices.fits(shape(3), Constraints(), ()) is behind
    assert set(behind.costs) == {"n1", "n2", "n3"}


def test_stale_entries_do_not_pile_up() -> None:
    """A node that changes all the time leaves a bounded number of outdated prices."""
    prices = _prices()
    for _ in range(500):
        prices.changes.add("n1", exists=True)
        entries = prices.fits(shape(3), Constraints(), ()).heap()
        assert len(entries) <= 100 + 2 * len(_NODES)
        current = {name for _, name, version in entries if version == prices.changes.versions[name]}
        assert current == set(_NODES)
